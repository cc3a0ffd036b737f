"""Weights of built sets beside the control's: equal to the bit, and a bit that is not is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layouts.sidecar import read_layout
from pipeline.container.blob import weight_blob
from pipeline.engineset.manifest import read_manifest
from pipeline.errors import MismatchError
from pipeline.evaluate.recipe import Places, set_recipe
from pipeline.evaluate.stored_weights import WeightCheck, compare_weights
from tests.helpers.adapters import PROJECTIONS, adapter_factors, write_gguf_adapter, write_peft_adapter
from tests.helpers.sets import Tiny, built, make_tiny, write_config
from tests.helpers.tiny import tiny_config, write_tiny_gguf

pytestmark = pytest.mark.slow

SETS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bf16": ("qwen2", "refit", {}),
    "fp32": ("llama", "refit", {"weight_type": "fp32"}),
    "s8": ("llama", "refit", {"weight_type": "s8", "post_weight_type": "s8", "scale_rule": "row/127.5"}),
    "s8 folded": ("gemma3", "search", {"weight_type": "s8", "scale_rule": "group/127", "fold_norms": "true"}),
    "s4": ("qwen3", "search", {"weight_type": "s4", "scale_type": "fp16"}),
}


def make(folder: Path, arch: str, scales: str, templates: dict[str, Any], before: str = "") -> Tiny:
    tiny = make_tiny(folder, arch, qtype="Q8_0")
    write_config(tiny.config, arch, layout_seed=3, **templates)
    text = tiny.config.read_text().replace('"true"', "true")
    tiny.config.write_text(f'scales = "{scales}"\n{before}' + text)
    return tiny


def check(directory: Path, **places: Path) -> WeightCheck:
    recipe = set_recipe(directory, read_manifest(directory), Places(**places))
    return compare_weights(directory, recipe.control().weight)


@pytest.mark.parametrize("name", SETS)
def test_every_weight_is_the_controls_and_a_flipped_bit_is_named(tmp_path: Path, name: str) -> None:
    directory = built(make(tmp_path, *SETS[name]))
    found = check(directory)
    assert found.first == ""
    assert found.equal == found.total > 20
    layout = read_layout(directory / "layer.layout.toml")
    stored = next(tensor for tensor in layout.tensors if tensor.name == "mlp.up_proj.weight")
    copy = stored.copies[-1]
    row = copy.rows[0][0] + 5
    path = next(directory.glob("*_l1_together.axmodel"))
    flip(path, weight_blob(path).offset * 8 + int(copy.planes[0].addresses(row, row + 1)[0, 7]))
    damaged = check(directory)
    assert (damaged.equal, damaged.total) == (found.total - 1, found.total)
    assert damaged.first.startswith(f"{path.name}: mlp.up_proj.weight: copy {copy.name}, row {row}, column 7: ")


def flip(path: Path, bit: int) -> None:
    path.chmod(0o644)
    data = np.memmap(path, np.uint8, "r+")
    data[bit // 8] ^= 1 << bit % 8
    data.flush()


@pytest.mark.parametrize("kind", ["gguf", "peft"])
def test_adapter_and_kept_rows(tmp_path: Path, kind: str) -> None:
    (tmp_path / "ids.json").write_text(json.dumps([7, 3, 999, 0]))
    templates = {"weight_type": "s8", "post_weight_type": "s8"}
    tiny = make(tmp_path, "llama", "refit", templates, 'vocab_keep = "ids.json"\n')
    config = tiny_config("llama")
    factors = adapter_factors(config, PROJECTIONS)
    if kind == "gguf":
        adapter = write_gguf_adapter(tmp_path / "adapter.gguf", config, factors)
    else:
        adapter = write_peft_adapter(tmp_path / "adapter", factors)
    directory = built(tiny, "--lora", adapter, "--lora-scale", "0.75")
    found = check(directory)
    assert (found.equal, found.first) == (found.total, "")
    recipe = set_recipe(directory, read_manifest(directory), Places())
    assert (recipe.kept, recipe.adapter_scale) == ((7, 3, 999, 0), 0.75)


def test_scales_of_the_engines_need_what_they_were_compiled_from(tmp_path: Path) -> None:
    tiny = make(tmp_path, "llama", "engine", {"weight_type": "s8", "corrections": 0.0})
    write_tiny_gguf(tmp_path / "base.gguf", tiny_config("llama"), seed=5, qtype="Q8_0")
    with tiny.config.open("a") as file:
        file.write('[templates.checkpoint]\npath = "base.gguf"\n')
    directory = built(tiny)
    with pytest.raises(MismatchError, match="--base"):
        check(directory)
    found = check(directory, base=tmp_path / "base.gguf")
    assert (found.equal, found.first) == (found.total, "")
