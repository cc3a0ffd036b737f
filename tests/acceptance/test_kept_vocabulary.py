"""`vocab_keep`: a head that keeps a list of tokens, in any order, with the map beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.integer_sets import S8, configure, engine_bytes, make_set
from tests.helpers.published import matrix_bytes, quantized, rule_of, scales_of
from tests.helpers.running import logits, tokens
from tests.helpers.sets import Tiny, built, engineset
from tests.helpers.tiny import tiny_config, tiny_weights

CONFIG = tiny_config("qwen3", vocab_size=333, num_hidden_layers=1, eos_token_ids=(2,))
POST = "qwen3_post.axmodel"
IDS = [2, 332, 7, 1, *range(20, 49)]
PROMPT = [11, 5, 301, 9]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tiny, Tiny]:
    """The whole vocabulary, and a part of it."""
    whole, part = (
        make_set(tmp_path_factory.mktemp(name), CONFIG, 1, **S8, layout_seed=0) for name in ("whole", "part")
    )
    (part.folder / "ids.json").write_text(json.dumps(IDS))
    configure(part, "qwen3", {"vocab_keep": "ids.json"}, **S8, layout_seed=0)
    for tiny in (whole, part):
        built(tiny)
    return whole, part


def test_head_holds_the_kept_rows_and_everything_else_is_the_same(pair: tuple[Tiny, Tiny]) -> None:
    whole, part = (engine_bytes(tiny.set) for tiny in pair)
    rule, rows = rule_of("s8"), tiny_weights(CONFIG, 1)["lm_head.weight"][IDS]
    scales = scales_of(rows, rule)
    assert part[POST].count(matrix_bytes(quantized(rows, scales, rule), scales, rule)) == 1
    assert len(part[POST]) < len(whole[POST])
    del whole[POST], part[POST]
    assert whole == part


def test_map_is_in_the_set_as_the_published_loader_reads_it(pair: tuple[Tiny, Tiny]) -> None:
    directory = pair[1].set
    name = json.loads((directory / "config.json").read_text())["filename_vocab_keep"]
    assert json.loads((directory / name).read_text()) == IDS
    assert json.loads((directory / "manifest.json").read_text())["source"]["vocab_keep"] == name
    assert "filename_vocab_keep" not in json.loads((pair[0].set / "config.json").read_text())


def test_trimmed_set_answers_with_the_best_of_the_kept_tokens(pair: tuple[Tiny, Tiny], tmp_path: Path) -> None:
    whole, part = pair
    prompt = tokens(6, seed=3)
    prompt = [token % 333 for token in prompt]
    for _ in range(6):
        full = logits(whole.set, prompt, tmp_path)[-1]
        best = IDS[int(np.argmax(full[IDS]))]
        words = ("--tokens", ",".join(map(str, prompt)), "-n", 1, "--ignore-eos", "--json")
        done = engineset("run", part.set, *words)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["tokens"] == [best]
        prompt.append(best)


def test_trimmed_set_is_verified(pair: tuple[Tiny, Tiny]) -> None:
    done = engineset("verify", pair[1].set, "--json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("content", ["[1, 1]", "[333]", "[-1]", "[]", "[true]", "[1.5]", '{"a": 1}', "[1", '["1"]'])
def test_lists_that_are_none_are_one_line(pair: tuple[Tiny, Tiny], content: str) -> None:
    part = pair[1]
    (part.folder / "ids.json").write_text(content)
    done = part.luigi()
    (part.folder / "ids.json").write_text(json.dumps(IDS))
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert str(part.folder / "ids.json") in line


def test_map_that_was_changed_is_refused_before_a_run(pair: tuple[Tiny, Tiny]) -> None:
    path = pair[1].set / "vocab_keep.json"
    before = path.read_bytes()
    path.write_text(json.dumps(IDS[::-1]) + "\n")
    done = engineset("run", pair[1].set, "--tokens", "5,7", "-n", 1)
    path.write_bytes(before)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "vocab_keep.json: sha256" in line
