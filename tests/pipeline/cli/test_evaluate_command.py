"""`engineset evaluate` refuses in one line what it cannot compare, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.sets import Tiny, build_tiny, engineset, make_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return build_tiny(tmp_path_factory.mktemp("evaluate"))


def refusal(tiny: Tiny, scratch: Path, *arguments: object) -> str:
    result = engineset("evaluate", tiny.set, "--twin", scratch / "twin.gguf", *arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert list(scratch.glob("twin*")) == []
    (line,) = result.stderr.splitlines()
    return line


def test_source_without_a_vocabulary(tiny: Tiny, tmp_path: Path) -> None:
    assert refusal(tiny, tmp_path).startswith(f"error: {tiny.gguf}: tokenizer.ggml.model: the source has no vocabulary")


def test_source_of_another_model(tiny: Tiny, tmp_path: Path) -> None:
    other = make_tiny(tmp_path / "other", num_hidden_layers=1)
    line = refusal(tiny, tmp_path, "--gguf", other.gguf)
    assert line.startswith(f"error: {other.gguf}: num_hidden_layers: not a source of the model of ")
    assert line.endswith("(expected 2, found 1)")
