"""`--lora`: an adapter of either kind is merged into the source at refit, and leaves no trace in the next set."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.model import ModelConfig
from tests.helpers.integer_sets import (
    S8,
    engine_bytes,
    low_rank,
    make_set,
    merged,
    small_config,
    write_adapter_gguf,
    write_peft,
    write_source,
)
from tests.helpers.sets import Tiny, built, contents, engineset
from tests.helpers.tiny import tiny_weights

CONFIG = small_config("llama")
NAMES = [
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.0.self_attn.k_proj.weight",
    "model.layers.1.mlp.down_proj.weight",
    "model.layers.1.self_attn.o_proj.weight",
]
FACTORS = low_rank(CONFIG, NAMES, seed=5)
ALPHA, SCALE = 12.0, 0.75
EFFECTIVE = SCALE * ALPHA / 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    made = make_set(tmp_path_factory.mktemp("adapters"), CONFIG, 1, **S8, layout_seed=0)
    built(made)
    return made


@pytest.fixture(scope="module")
def by_hand(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Engines of weights that were merged here."""
    plain, folder = contents(tiny.set), tmp_path_factory.mktemp("merged")
    source = write_source(folder / "hf", CONFIG, merged(tiny_weights(CONFIG, 1), FACTORS, EFFECTIVE))
    built(tiny, "--gguf", source)
    found = engine_bytes(tiny.set)
    assert {name for name in found if found[name] != plain[name]} == {
        "llama_p8_l0_together.axmodel",
        "llama_p8_l1_together.axmodel",
    }
    built(tiny)
    assert contents(tiny.set) == plain
    return found


def adapter(kind: str, folder: Path, config: ModelConfig = CONFIG) -> Path:
    if kind == "peft":
        return write_peft(folder / "adapter", FACTORS, ALPHA)
    return write_adapter_gguf(folder / "adapter.gguf", config, FACTORS, ALPHA)


@pytest.mark.parametrize("kind", ["peft", "gguf"])
def test_adapter_gives_the_set_of_the_merged_weights(
    tiny: Tiny, by_hand: dict[str, bytes], tmp_path: Path, kind: str
) -> None:
    plain = contents(tiny.set)
    path = adapter(kind, tmp_path)
    built(tiny, "--lora", path, "--lora-scale", SCALE)
    assert engine_bytes(tiny.set) == by_hand
    entry = json.loads((tiny.set / "manifest.json").read_text())["source"]["adapter"]
    assert (entry["path"], entry["scale"]) == (str(path), SCALE)
    assert len(entry["files"]) == (2 if kind == "peft" else 1)
    verified = engineset("verify", tiny.set, "--json")
    assert verified.returncode == 0, verified.stderr
    built(tiny)
    assert contents(tiny.set) == plain


def test_scale_and_content_of_an_adapter_are_part_of_the_identity(tiny: Tiny, tmp_path: Path) -> None:
    path = adapter("peft", tmp_path)
    sets = {built(tiny, "--lora", path, "--lora-scale", scale).name for scale in (1, 0.5, 0.25)}
    (tmp_path / "adapter" / "adapter_model.safetensors").unlink()
    (tmp_path / "adapter" / "adapter_config.json").unlink()
    (tmp_path / "adapter").rmdir()
    write_peft(tmp_path / "adapter", low_rank(CONFIG, NAMES, seed=6), ALPHA)
    sets.add(built(tiny, "--lora", path, "--lora-scale", 1).name)
    sets.add(built(tiny).name)
    assert len(sets) == 5


def refused(tiny: Tiny, *arguments: object) -> str:
    before = sorted(path.name for path in tiny.build.glob("sets/*"))
    done = tiny.luigi(*arguments)
    assert done.returncode != 0
    assert sorted(path.name for path in tiny.build.glob("sets/*")) == before
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    return line


def test_adapters_that_would_be_silently_wrong_are_refused_in_one_line(tiny: Tiny, tmp_path: Path) -> None:
    cases = {
        "none": {"model.layers.7.mlp.up_proj.weight": FACTORS[NAMES[2]]},
        "some": FACTORS | {"model.layers.0.mlp.other_proj.weight": FACTORS[NAMES[2]]},
        "shape": {NAMES[0]: FACTORS[NAMES[2]]},
        "nan": {NAMES[0]: (np.full_like(FACTORS[NAMES[0]][0], np.nan), FACTORS[NAMES[0]][1])},
    }
    for name, factors in cases.items():
        path = write_peft(tmp_path / name, factors, ALPHA)
        assert str(path) in refused(tiny, "--lora", path), name
    assert "tiny.gguf" in refused(tiny, "--lora", tiny.gguf)
    good = write_peft(tmp_path / "good", FACTORS, ALPHA)
    for scale in ("inf", "nan"):
        assert scale in refused(tiny, "--lora", good, "--lora-scale", scale)
    assert str(tmp_path / "absent") in refused(tiny, "--lora", tmp_path / "absent")


def test_adapter_of_another_architecture(tiny: Tiny, tmp_path: Path) -> None:
    path = adapter("gguf", tmp_path, small_config("qwen3"))
    assert str(path) in refused(tiny, "--lora", path)


def test_adapter_as_source(tiny: Tiny, tmp_path: Path) -> None:
    path = adapter("gguf", tmp_path)
    assert str(path) in refused(tiny, "--gguf", path)
