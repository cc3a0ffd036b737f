"""`engineset locate`: read the named bits of an engine file one by one, and they are the weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.helpers.integer_sets import make_set
from tests.helpers.published import dequantized, quantized, rule_of, scales_of
from tests.helpers.sets import Tiny, built, engineset
from tests.helpers.tiny import Float32, tiny_config, tiny_weights

CONFIG = tiny_config("qwen3", vocab_size=257, hidden_size=257, intermediate_size=255, head_dim=12, num_hidden_layers=2)
WEIGHTS = tiny_weights(CONFIG, 1)
ENGINES = {"layer": "qwen3_p8_l1_together.axmodel", "post": "qwen3_post.axmodel"}
GATE, HEAD, NORM = "mlp.gate_proj.weight", "lm_head.weight", "self_attn.k_norm.weight"
Flags = dict[str, Any]
CASES = [
    {"weight_type": "s8", "post_weight_type": "s4", "layout_seed": 0},
    {"weight_type": "s8", "post_weight_type": "s8", "layout_seed": 6, "scale_rule": "group/127.5"},
    {"weight_type": "s4", "post_weight_type": "bf16", "layout_seed": 14, "scale_type": "fp16"},
]


@pytest.fixture(scope="module", params=CASES, ids=lambda flags: "-".join(map(str, flags.values())))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tiny, Flags]:
    tiny = make_set(tmp_path_factory.mktemp("locate"), CONFIG, 1, prefill_share=0.8, **request.param)
    built(tiny)
    return tiny, request.param


def located(tiny: Tiny, kind: str, name: str, row: int, col: int, *more: object) -> dict[str, Any]:
    done = engineset("locate", tiny.set / f"{kind}.layout.toml", name, row, col, "--json", *more)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def bits_of(path: Path, place: dict[str, Any]) -> int:
    """Bit by bit, the lowest first."""
    data = path.read_bytes()
    first = 8 * place["byte"] + place["bit"]
    return sum((data[at // 8] >> at % 8 & 1) << at - first for at in range(first, first + place["width"]))


def stored_value(path: Path, found: dict[str, Any], copy: str) -> int:
    planes = [place for place in found["places"] if place["copy"] == copy]
    names = {"s8": ["fine", "coarse"]}.get(found["codec"], ["value"])
    assert sorted(place["plane"] for place in planes) == sorted(names)
    return sum((bits_of(path, place) - place["bias"]) << place["low_bit"] for place in planes)


def quantization(weight_type: str, flags: Flags, values: Float32) -> tuple[Float32, Float32]:
    """Values as stored, and scales, of the tests' own arithmetic."""
    rule = rule_of(weight_type, flags.get("scale_rule", "row/127"), flags.get("scale_type", "bf16"))
    scales = scales_of(values, rule)
    return dequantized(quantized(values, scales, rule), scales, rule), scales


@pytest.mark.parametrize(("kind", "name"), [("layer", GATE), ("post", HEAD)])
def test_bits_are_the_weight(made: tuple[Tiny, Flags], kind: str, name: str) -> None:
    tiny, flags = made
    weight_type = flags["weight_type" if kind == "layer" else "post_weight_type"]
    values = WEIGHTS[f"model.layers.1.{name}" if kind == "layer" else name]
    path = tiny.set / ENGINES[kind]
    rows, cols = values.shape
    copies = set()
    for row, col in [(0, 0), (15, 35), (16, 36), (31, 127), (33, 128), (rows - 1, cols - 1), (100, cols - 2)]:
        found = located(tiny, kind, name, row, col)
        assert found["codec"] == weight_type
        for copy in {place["copy"] for place in found["places"]}:
            copies.add(copy)
            raw = stored_value(path, found, copy)
            if weight_type == "bf16":
                assert found["scale"] == [] and raw == int(values[row, col].astype(ml_dtypes.bfloat16).view(np.uint16))
                continue
            (entry,) = [place for place in found["scale"] if place["copy"] == copy]
            bits = bits_of(path, entry)
            stored, scales = quantization(weight_type, flags, values)
            scale = entry_scale(bits, weight_type, flags)
            assert scale == scales[row, col // (256 if weight_type == "s8" else 128)]
            assert np.float32(raw if raw < 128 else raw - 256) * scale == stored[row, col]
    if flags["layout_seed"] == 0:  # other seeds draw what is copied
        assert ("prefill" in copies) == (kind == "layer")


def entry_scale(bits: int, weight_type: str, flags: Flags) -> np.float32:
    if weight_type == "s8":
        scale, reciprocal = (np.uint16(half).view(ml_dtypes.bfloat16) for half in (bits >> 16, bits & 0xFFFF))
        assert reciprocal == (np.float32(1) / np.float32(scale)).astype(ml_dtypes.bfloat16)
        return np.float32(scale)
    dtype = np.float16 if flags.get("scale_type") == "fp16" else ml_dtypes.bfloat16
    return np.float32(np.uint16(bits).view(dtype))


def test_vectors_are_located_too(made: tuple[Tiny, Flags]) -> None:
    tiny, _ = made
    values = WEIGHTS[f"model.layers.1.{NORM}"].astype(ml_dtypes.bfloat16).view(np.uint16)
    for index in (0, 7, 11):
        found = located(tiny, "layer", f"model.layers.1.{NORM}", 0, index)
        assert {bits_of(tiny.set / ENGINES["layer"], place) for place in found["places"]} == {int(values[index])}
        assert located(tiny, "layer", NORM, index, 0) == found


def test_offset_of_another_engine(made: tuple[Tiny, Flags]) -> None:
    tiny, _ = made
    path = tiny.set / ENGINES["layer"]
    assert located(tiny, "layer", GATE, 9, 9, "--engine", path) == located(tiny, "layer", GATE, 9, 9)


@pytest.mark.parametrize("arguments", [(GATE, 255, 0), (GATE, 0, 257), ("mlp.gate", 0, 0), (NORM, 0, 12)])
def test_refusals(made: tuple[Tiny, Flags], arguments: tuple[object, ...]) -> None:
    done = engineset("locate", made[0].set / "layer.layout.toml", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and str(arguments[0]) in line
