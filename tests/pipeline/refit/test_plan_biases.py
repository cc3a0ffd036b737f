"""Biases of a language model that stand in bias entries: the set's plan names them like any other weight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layouts.algebra import Digit, Layout, Piece
from layouts.bias import Bias
from layouts.scales import Scales
from layouts.stored import EngineLayout, Plane, StoredTensor
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.errors import MismatchError
from pipeline.refit.assigned import AssignedWeights
from pipeline.refit.plan import check_plan, plan_engine
from pipeline.refit.refused import PlanRefusedError
from pipeline.toolchain.kinds import LAYER
from tests.helpers.engines import small_options, true_layouts
from tests.helpers.integers import published
from tests.helpers.tiny import tiny_config

CONFIG = tiny_config("qwen2")
NOISE = NoiseCheckpoint(CONFIG, 1)
LAYOUTS = true_layouts(NOISE, small_options())
WEIGHT, BIAS = "self_attn.k_proj.weight", "self_attn.k_proj.bias"


def with_bias_entries() -> dict[str, EngineLayout]:
    """The key projection as integers behind the blob, its bias beside them and no tensor of its own."""
    layout = LAYOUTS[LAYER]
    shape = layout[WEIGHT].shape
    rule = Scales("fp32", shape[1], 127.5, True)
    plain = published(WEIGHT, shape, "s8", layout.blob_bytes, rule)
    end = max(part.extent[1] for part in plain.layouts())
    beside = Plane((Piece(0, 0, Layout((shape[0], 1), end, (Digit(shape[0], 32),), (), 32)),))
    copies = (replace(plain.copies[0], bias=beside),)
    stored = replace(plain, copies=copies, bias=Bias(BIAS, "fp32", 1.0, 0))
    kept = tuple(tensor for tensor in layout.tensors if tensor.name not in (WEIGHT, BIAS))
    size = (end + 32 * shape[0]) // 8
    return LAYOUTS | {LAYER: replace(layout, blob_bytes=size, tensors=(*kept, stored))}


class Without(NoiseCheckpoint):
    """A checkpoint that lacks a tensor, or has it in another shape."""

    def __init__(self, name: str, shape: tuple[int, ...] | None) -> None:
        super().__init__(CONFIG, 1)
        self._shapes.pop(name)
        self._shapes |= {name: shape} if shape else {}


def test_bias_goes_with_its_weight() -> None:
    layouts = with_bias_entries()
    check_plan(CONFIG, layouts, NOISE)
    layout = layouts[LAYER]
    weights = AssignedWeights(NOISE, plan_engine(CONFIG, LAYER, 1), layout)
    stored: StoredTensor = layout[WEIGHT]
    assert weights.sources(stored) == (f"model.layers.1.{WEIGHT}", f"model.layers.1.{BIAS}")
    given = list(weights.ranges(stored))
    expected = NOISE.read(f"model.layers.1.{BIAS}")
    assert np.array_equal(np.concatenate([part.bias for part in given if part.bias is not None]), expected)
    assert np.array_equal(weights.read(BIAS, slice(0, 1)), expected[None])


@pytest.mark.parametrize("shape", [None, (7,)])
def test_bias_that_is_missing_or_of_another_length_is_a_fault(shape: tuple[int, ...] | None) -> None:
    name = f"model.layers.1.{BIAS}"
    with pytest.raises(PlanRefusedError) as caught:
        check_plan(CONFIG, with_bias_entries(), Without(name, shape))
    (line,) = caught.value.faults
    assert name in line
    assert ("missing" in line) == (shape is None)


def test_plan_of_other_weights_than_the_layouts_is_refused() -> None:
    layout = LAYOUTS[LAYER]
    fewer = replace(layout, tensors=layout.tensors[1:])
    with pytest.raises(MismatchError, match=f"differ in weights: {layout.tensors[0].name}"):
        AssignedWeights(NOISE, plan_engine(CONFIG, LAYER, 0), fewer)
