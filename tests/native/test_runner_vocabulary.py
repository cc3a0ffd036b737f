"""Sets whose head is trimmed to a list of token ids: rows of the logits are not ids."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.checkpoint.kept import keep_rows
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.engineset.names import engine_names
from pipeline.engineset.vendor_config import vendor_files
from pipeline.native import Runner
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model
from tests.helpers.fake_runtime import run_fake, write_fake_set
from tests.helpers.numerics import bf16_floats
from tests.helpers.tiny import tiny_config

# The fake's post engine likes row (id + 1) % 5 best.
KEPT = [250, 7, 9, 31, 100]


def trimmed(directory: Path, kept: Any = KEPT, rows: int = 5) -> Path:
    write_fake_set(directory, config={"filename_vocab_keep": "keep.json"}, post={"vocab": rows})
    (directory / "keep.json").write_text(kept if isinstance(kept, str) else json.dumps(kept))
    return directory


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [
        ([], [100, 7]),  # 7 ends the text
        (["--ignore-eos"], [100, 7, 31, 9, 250, 7, 31, 9]),
        (["--ignore-eos", "--temperature", "0.01"], [100, 7, 31, 9, 250, 7, 31, 9]),
    ],
)
def test_vocabulary_generates_ids(tmp_path: Path, arguments: list[str], tokens: list[int]) -> None:
    ran = run_fake(trimmed(tmp_path / "set"), tmp_path, "--tokens", "3", "--max-tokens", "8", *arguments)
    assert (ran.code, [int(line) for line in ran.out]) == (0, tokens), ran.err
    fed = [call["tokens"][0] for call in ran.layer_calls()[::3]]
    assert fed == [3, *tokens[:-1]]


def serve(directory: Path, scratch: Path, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    ran = run_fake(directory, scratch, "--serve", stdin="\n".join(map(json.dumps, requests)))
    assert (ran.code, ran.err) == (0, [])
    return [json.loads(line) for line in ran.out]


def test_vocabulary_scores_ids_and_writes_rows(tmp_path: Path) -> None:
    tokens = [3, 100, 7, 9]  # likes 100, 7 and 31 best
    request = {"op": "score", "tokens": tokens, "logits": str(tmp_path / "logits")}
    (answer,) = serve(trimmed(tmp_path / "set"), tmp_path, request)
    logits = bf16_floats(np.fromfile(tmp_path / "logits", "<u2").reshape(4, 5))
    assert [KEPT[row] for row in logits.argmax(axis=1)] == [100, 7, 31, 250]
    total = math.log(math.exp(4) + 4)
    assert [float.fromhex(value) for value in answer["nll"]] == pytest.approx([total - 4, total - 4, total], rel=1e-12)


def test_vocabulary_target_that_is_not_kept(tmp_path: Path) -> None:
    directory = trimmed(tmp_path / "set")
    asked = {"op": "score", "tokens": [3, 100, 8, 7]}
    answers = serve(directory, tmp_path, asked, {"op": "score", "tokens": [8]}, {"op": "score", "tokens": [7, 300]})
    assert answers == [
        {"error": "tokens: id 8 is not kept (filename_vocab_keep)"},
        {"nll": [], "positions": 1},
        {"error": "tokens: expected ids below 300, found 300"},
    ]


def test_vocabulary_logits_past_a_target_that_is_not_kept(tmp_path: Path) -> None:
    """Whoever asks for logits gets those of every position; the token that is not kept has no likelihood."""
    tokens = [3, 100, 8, 7]
    request = {"op": "score", "tokens": tokens, "logits": str(tmp_path / "logits")}
    (answer,) = serve(trimmed(tmp_path / "set"), tmp_path, request)
    nll = [float.fromhex(value) for value in answer["nll"]]
    assert [math.isnan(value) for value in nll] == [False, True, False]
    assert np.fromfile(tmp_path / "logits", "<u2").size == 4 * len(KEPT)


@pytest.mark.parametrize(
    ("kept", "rows", "line"),
    [
        ("{", 5, "keep.json: is not a JSON array of token ids"),
        ('{"0": 1}', 5, "keep.json: is not a JSON array of token ids"),
        ("[" * 100 + "]" * 100, 5, "keep.json: JSON nests deeper than 32"),
        ([], 5, "keep.json: expected token ids, found none"),
        ([1, 2, 3, 4, 300], 5, "keep.json: expected ids below 300, found 300 in row 4"),
        ([1, 2, 3, 4, -1], 5, "keep.json: expected token ids, found -1"),
        ([1, 2, 3, 4, 2**31], 5, "keep.json: expected token ids, found 2147483648"),
        ([1, 2, 3, 4, 5.0], 5, "keep.json: expected token ids, found 5.0"),
        ([1, 2, 3, 4, "5"], 5, 'keep.json: expected token ids, found "5"'),
        ([1, 2, 3, 4, 2], 5, "keep.json: expected every id once, found 2 in row 4 and 1"),
        (KEPT, 6, "m_post.axmodel: output: expected 5 elements (ids of filename_vocab_keep of config.json), found 6"),
        (
            KEPT,
            300,
            "m_post.axmodel: output: expected 5 elements (ids of filename_vocab_keep of config.json), found 300",
        ),
    ],
)
def test_vocabulary_maps_that_are_refused(tmp_path: Path, kept: Any, rows: int, line: str) -> None:
    directory = trimmed(tmp_path / "set", kept, rows)
    ran = run_fake(directory, tmp_path, "--tokens", "1")
    assert (ran.code, ran.err) == (1, [f"{directory}/{line}"])


@pytest.mark.parametrize("name", ["../keep.json", "/etc/passwd", "missing.json", 7, ""])
def test_vocabulary_maps_that_are_not_files_of_the_set(tmp_path: Path, name: Any) -> None:
    directory = trimmed(tmp_path / "set")
    (tmp_path / "keep.json").write_text(json.dumps(KEPT))
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"filename_vocab_keep": name}))
    ran = run_fake(directory, tmp_path, "--tokens", "1")
    assert (ran.code, len(ran.err), ran.calls) == (1, 1, [])


@pytest.mark.parametrize("name", ["config.json", "post_config.json", "keep.json"])
def test_vocabulary_and_settings_of_no_end_are_not_read(tmp_path: Path, name: str) -> None:
    directory = trimmed(tmp_path / "set")
    with (directory / name).open("ab") as file:
        file.truncate(1 << 40)  # a sparse file
    ran = run_fake(directory, tmp_path, "--tokens", "1")
    line = f"{directory}/{name}: size: expected at most 16777216 bytes, found 1099511627776"
    assert (ran.code, ran.err, ran.calls) == (1, [line], [])


def test_vocabulary_of_real_engines(tmp_path: Path) -> None:
    """A trimmed head computes what the whole one computes for the rows that are kept."""
    config = tiny_config("qwen2", num_hidden_layers=1, vocab_size=400, eos_token_ids=())
    source, options = NoiseCheckpoint(config, 1), CompileOptions(kv_cache_len=64, prefill_len=64, layout_seed=2)
    kept = [int(token) for token in np.random.default_rng(1).permutation(400)[:77]]
    tokens = kept[:20]
    logits = {}
    for name, checkpoint in (("whole", source), ("trimmed", keep_rows(source, kept))):
        directory = tmp_path / name
        compile_model(checkpoint, directory, options)
        for file, content in vendor_files("tiny", checkpoint.config, engine_names(checkpoint.config, 64), None).items():
            (directory / file).write_bytes(content)
        if name == "trimmed":
            (directory / "vocab_keep.json").write_text(json.dumps(kept))
        with Runner(directory) as runner:
            nll = runner.score(tokens, logits=tmp_path / "logits").nll
            logits[name] = np.fromfile(tmp_path / "logits", "<u2").reshape(20, -1)
            assert name != "trimmed" or set(runner.generate(tokens, max_tokens=9)) <= set(kept)
    assert (logits["whole"][:, kept] == logits["trimmed"]).all()
    values = bf16_floats(logits["trimmed"]).astype(np.float64)[:-1]
    expected = np.log(np.exp(values).sum(axis=1)) - values[np.arange(19), [kept.index(t) for t in tokens[1:]]]
    assert nll == pytest.approx(expected, rel=1e-9)
