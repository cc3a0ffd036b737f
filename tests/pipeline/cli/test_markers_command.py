"""What `engineset markers make` writes for people with a compiler."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.checkpoint.open import open_checkpoint
from pipeline.cli.markers import markers
from pipeline.errors import ToolchainError
from pipeline.files import file_sha256
from tests.helpers.tiny import tiny_config, write_tiny_gguf

SIZES = {"hidden_size": 32, "num_attention_heads": 2, "head_dim": 16, "intermediate_size": 48, "vocab_size": 70}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "model.gguf"
    write_tiny_gguf(path, tiny_config("qwen3", **SIZES), 1)
    return path


def make(*arguments: object) -> Result:
    return CliRunner().invoke(markers, ["make", *map(str, arguments)])


def listed(output: Path) -> dict[str, Any]:
    return dict(json.loads((output / "markers.json").read_text()))


def words_of(build: dict[str, Any]) -> dict[str, str]:
    words = [word for word in shlex.split(build["command"]) if "=" not in word]
    return dict(zip(words[2::2], words[3::2], strict=True))


@pytest.mark.parametrize("weight_type", ["bf16", "s8", "s4"])
def test_every_directory_is_a_checkpoint_of_one_layer(source: Path, tmp_path: Path, weight_type: str) -> None:
    output = tmp_path / "markers"
    result = make("--input_path", source, "-w", weight_type, "-o", output)
    assert result.exit_code == 0, result.exception
    content = listed(output)
    names = [build["directory"] for build in content["builds"]]
    assert names == [*(f"build-{n}" for n in range(len(names) - 1)), "confirm"]
    assert {path.name for path in output.iterdir()} == {*names, "markers.json"}
    for build in content["builds"]:
        checkpoint = open_checkpoint(output / build["directory"])
        assert checkpoint.config.num_hidden_layers == 1
        assert checkpoint.config.hidden_size == SIZES["hidden_size"]
        assert not checkpoint.config.tie_word_embeddings
        files = {path.name: file_sha256(path) for path in (output / build["directory"]).iterdir()}
        assert build["files"] == files
    assert [build["command"] for build in content["builds"]] == result.stdout.splitlines()[1:]


def test_commands_are_the_vendors(source: Path, tmp_path: Path) -> None:
    flags = ("--kv_cache_len", 256, "--prefill_len", 64, "--last_kv_cache_len", 64, "--chip", "AX650")
    make("--input_path", source, "-w", "s8", "--post_weight_type", "s8", *flags, "-o", tmp_path / "s8")
    first = listed(tmp_path / "s8")["builds"][0]
    assert first["command"].startswith("pulsar2 llm_build --input_path build-0 --output_path build-0/engines ")
    expected = {"--kv_cache_len": "256", "--prefill_len": "64", "--last_kv_cache_len": "64", "--chip": "AX650"}
    assert expected.items() <= words_of(first).items()
    assert (words_of(first)["-w"], words_of(first)["--post_weight_type"]) == ("s8", "s8")
    make("--input_path", source, "-w", "s4", "--kv_cache_len", 256, "-o", tmp_path / "s4")
    last = listed(tmp_path / "s4")["builds"][-1]
    assert last["command"].startswith("pulsar2 llm_build2 --input_path confirm --output_path confirm/engines ")
    assert (words_of(last)["--max_context"], words_of(last)["--post_weight_type"]) == ("257", "bf16")
    assert (words_of(last)["--prefill_len"], words_of(last)["--prefill_step_size"]) == ("256", "128")


def test_nothing_is_overwritten_and_nothing_left_behind(source: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("kept")
    assert isinstance(make("--input_path", source, "-o", tmp_path / "there").exception, ToolchainError)
    assert isinstance(make("--input_path", source, "-w", "s3", "-o", tmp_path / "new").exception, ToolchainError)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there" / "file").read_text() == "kept"
