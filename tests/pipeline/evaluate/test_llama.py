from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import MissingFileError, RunnerError
from pipeline.evaluate import llama
from pipeline.evaluate.llama import LlamaModel
from tests.helpers.tiny import tiny_config, write_tiny_gguf

TOKENS = [5, 17, 200, 3, 999, 42, 8, 8, 77, 500]


@pytest.fixture(scope="module")
def gguf_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama") / "tiny.gguf"
    write_tiny_gguf(path, tiny_config("llama"), seed=1)
    return path


def test_logits_are_the_same_in_one_batch_and_in_several(gguf_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LlamaModel(gguf_path, 64, 1) as model:
        whole = model.logits(TOKENS)
        monkeypatch.setattr(llama, "BATCH_TOKENS", 4)
        assert whole.shape == (len(TOKENS), 1000)
        np.testing.assert_allclose(model.logits(TOKENS), whole, atol=1e-4)


def test_logits_row_depends_on_the_tokens_before_it_only(gguf_path: Path) -> None:
    with LlamaModel(gguf_path, 64, 1) as model:
        changed = model.logits([*TOKENS[:-1], 1])
        whole = model.logits(TOKENS)
    np.testing.assert_allclose(changed[:-1], whole[:-1], atol=1e-4)
    assert np.abs(changed[-1] - whole[-1]).max() > 0.1


def test_greedy_follows_the_logits_of_each_prompt(gguf_path: Path) -> None:
    prompts = [TOKENS[:3], TOKENS[3:9], [7]]
    with LlamaModel(gguf_path, 64, 1) as model:
        batched = model.greedy(prompts, 5, ignore_end=True)
        for prompt, continuation in zip(prompts, batched, strict=True):
            rows = model.logits([*prompt, *continuation])[len(prompt) - 1 : -1]
            assert continuation == rows.argmax(axis=1).tolist()


@pytest.mark.parametrize("batch", [512, 4])
def test_most_likely_tokens_are_those_of_the_logits(
    gguf_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    sequences, starts = [TOKENS[:7], TOKENS[2:], [9]], [6, 2, 1]
    monkeypatch.setattr(llama, "BATCH_TOKENS", batch)
    with LlamaModel(gguf_path, 64, 1) as model:
        expected = [
            model.logits(tokens)[start - 1 :].argmax(axis=1).tolist()
            for tokens, start in zip(sequences, starts, strict=True)
        ]
        assert model.most_likely(sequences, starts) == expected
        assert model.most_likely([], []) == []


def test_greedy_stops_before_an_end_token(gguf_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LlamaModel(gguf_path, 64, 1) as model:
        free = model.greedy([TOKENS], 6, ignore_end=True)[0]
        monkeypatch.setattr(LlamaModel, "is_end", lambda self, token: token == free[3])
        assert model.greedy([TOKENS], 6)[0] == free[: free.index(free[3])]
        assert model.greedy([TOKENS], 6, ignore_end=True)[0] == free


@pytest.mark.parametrize(
    ("tokens", "line"),
    [([], "expected 1 to 64, found 0"), ([1] * 65, "found 65"), ([1000], "found 1000 to 1000"), ([-1, 4], "found -1")],
)
def test_tokens_out_of_range_are_refused(gguf_path: Path, tokens: list[int], line: str) -> None:
    with LlamaModel(gguf_path, 64, 1) as model, pytest.raises(RunnerError, match=line):
        model.logits(tokens)


def test_a_file_that_is_no_gguf_names_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(RunnerError, match=r"broken\.gguf: llama\.cpp cannot load this model: .+"):
        LlamaModel(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"absent\.gguf"):
        LlamaModel(tmp_path / "absent.gguf")
