"""What a set says comes from the bytes of its engine files, copy by copy, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.running import Tiny, build_running, greedy, nll_bits, scramble, tokens, writable_copy

IDS = tokens(110, seed=1)
PROMPT = tokens(80, seed=2)
GATE, UP = "mlp.gate_proj.weight", "mlp.up_proj.weight"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return build_running(tmp_path_factory.mktemp("file"), "qwen2")


@pytest.mark.parametrize("layer", [0, 1])
def test_scrambled_layer_changes_the_text_and_restoring_it_restores_it(tiny: Tiny, tmp_path: Path, layer: int) -> None:
    directory = writable_copy(tiny, tmp_path)
    engine = directory / f"qwen2_p64_l{layer}_together.axmodel"
    text, bits = greedy(directory, PROMPT, 24), nll_bits(directory, IDS)
    before = scramble(directory, engine, ["mlp.down_proj.weight", "self_attn.o_proj.weight"])
    assert engine.read_bytes() != before
    assert greedy(directory, PROMPT, 24) != text
    assert nll_bits(directory, IDS) != bits
    engine.write_bytes(before)
    assert greedy(directory, PROMPT, 24) == text
    assert nll_bits(directory, IDS) == bits


def test_scrambled_prefill_copies_change_a_prefilled_prompt_alone(tiny: Tiny, tmp_path: Path) -> None:
    directory = writable_copy(tiny, tmp_path)
    engine = directory / "qwen2_p64_l0_together.axmodel"
    text, bits = greedy(directory, PROMPT, 24), nll_bits(directory, IDS)
    assert nll_bits(directory, IDS, prefill=False) == bits, "a token has the same bits in a decode call and in a chunk"
    scramble(directory, engine, [GATE, UP], copy="prefill")
    assert greedy(directory, PROMPT, 24, prefill=True) != text
    assert nll_bits(directory, IDS, prefill=True) != bits
    assert greedy(directory, PROMPT, 24, prefill=False) == text
    assert nll_bits(directory, IDS, prefill=False) == bits


def test_scrambled_decode_rows_change_a_token_by_token_prompt(tiny: Tiny, tmp_path: Path) -> None:
    directory = writable_copy(tiny, tmp_path)
    text = greedy(directory, PROMPT, 24, prefill=False)
    scramble(directory, directory / "qwen2_p64_l0_together.axmodel", [GATE, UP], copy="decode")
    assert greedy(directory, PROMPT, 24, prefill=False) != text


def test_layouts_and_manifest_are_not_needed_to_run(tiny: Tiny, tmp_path: Path) -> None:
    directory = writable_copy(tiny, tmp_path)
    for name in ("manifest.json", "layer.layout.toml", "post.layout.toml", "embedding.layout.toml"):
        (directory / name).unlink()
    assert nll_bits(directory, IDS) == nll_bits(tiny.set, IDS)
