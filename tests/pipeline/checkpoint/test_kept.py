"""A head trimmed to a list of tokens, and every list that is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.checkpoint.kept import keep_rows, read_ids
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.protocol import locate
from pipeline.errors import ConfigError, MissingFileError
from pipeline.model import EMBEDDING, HEAD
from tests.helpers.tiny import tiny_config

LISTS = [[0], [999], [5, 3, 4], list(range(1000)), list(range(999, -1, -1)), [0, 500, 17, 16, 999, 18, 501, 34]]


@pytest.mark.parametrize("ids", LISTS, ids=lambda ids: f"{len(ids)} from {ids[0]}")
@pytest.mark.parametrize("tied", [False, True])
def test_rows_are_those_of_the_tokens(ids, tied):
    base = NoiseCheckpoint(tiny_config("qwen3", hidden_size=32, tie_word_embeddings=tied), 1)
    kept = keep_rows(base, ids)
    assert (kept.config.kept_rows, kept.config.head_rows) == (len(ids), len(ids))
    assert not kept.config.tie_word_embeddings and kept.config.vocab_size == 1000
    assert kept.names() == base.names() and kept.shape(HEAD.name) == (len(ids), 32)
    whole = base.read(HEAD.name)
    np.testing.assert_array_equal(kept.read(HEAD.name), whole[ids], strict=True)
    for rows in (slice(0, 1), slice(1, 3), slice(2, 2), slice(-3, None), slice(4, 9000)):
        np.testing.assert_array_equal(kept.read(HEAD.name, rows), whole[ids][rows], strict=True)
    np.testing.assert_array_equal(kept.read(EMBEDDING.name), base.read(EMBEDDING.name), strict=True)
    assert [locate(kept, HEAD.name, row)[2] for row in range(len(ids))] == ids
    assert locate(kept, EMBEDDING.name, 7)[2] == 7


def test_rows_are_read_lazily(monkeypatch: pytest.MonkeyPatch):
    base, read = NoiseCheckpoint(tiny_config(hidden_size=32), 1), []

    def spy(name, rows=None):
        read.append(rows)
        return NoiseCheckpoint.read(base, name, rows)

    monkeypatch.setattr(base, "read", spy)
    keep_rows(base, [900, 3, 500, 901, 4, 6]).read(HEAD.name, slice(1, 5))
    assert read == [slice(3, 5), slice(500, 501), slice(901, 902)]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_ids_are_read_in_their_order(tmp_path: Path):
    ids = [5, 0, 999, 3]
    assert read_ids(write(tmp_path / "ids.json", json.dumps(ids)), 1000) == ids


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[1, 2", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[" + "9" * 5000 + "]", "not JSON"),
        ("{}", r"not a list of token ids \(expected a JSON array of integers, found dict\)"),
        ("3", "not a list of token ids .*found int"),
        ("[]", "not a list of token ids .*found an empty array"),
        ("[1, 2.0]", r"\[1\]: not a token id \(expected an integer, found 2.0\)"),
        ("[true]", r"\[0\]: not a token id .*found True"),
        ('[1, "2"]', r"\[1\]: not a token id"),
        ("[null]", r"\[0\]: not a token id"),
        ("[[1]]", r"\[0\]: not a token id"),
        ("[0, 20]", r"\[1\]: outside the vocabulary \(expected 0 to 19, found 20\)"),
        ("[-1]", r"\[0\]: outside the vocabulary"),
        ("[100000000000000000000]", r"\[0\]: outside the vocabulary"),
        ("[4, 7, 4]", r"\[2\]: token 4 is also at \[0\]"),
    ],
)
def test_ids_refused(tmp_path: Path, text, message):
    with pytest.raises(ConfigError, match=rf"ids\.json: {message}") as caught:
        read_ids(write(tmp_path / "ids.json", text), 20)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_file_that_is_not_there_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(MissingFileError, match=r"ids\.json: no such file"):
        read_ids(tmp_path / "ids.json", 20)
    monkeypatch.setattr("pipeline.checkpoint.kept._MAX_JSON", 5)
    with pytest.raises(ConfigError, match="too large for a list of token ids"):
        read_ids(write(tmp_path / "ids.json", "[1,  2]"), 20)
