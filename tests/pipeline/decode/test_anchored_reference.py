"""Engines of the reference compiler decoded from their own weights: the compiler's map, place by place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layouts.stored import Plane, StoredTensor
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.decode.anchored import decode_engine
from pipeline.engineset.names import engine_file
from pipeline.model import ModelConfig
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model, engine_layout

CONFIG = ModelConfig("llama", 256, 1, 4, 2, 64, 344, 512, 1e-5, 1e4, False, 256)
CASES = [
    ("bf16", "row/127", 0),
    ("bf16", "row/127", 4),
    ("fp32", "row/127", 2),
    ("s8", "row/127", 0),
    ("s8", "row/127", 2),
    ("s8", "group/127", 4),
    ("s4", "group/127", 0),
    ("s4", "group/127", 5),
]


@pytest.mark.parametrize(("weight_type", "rule", "seed"), CASES)
def test_places_are_the_compilers(weight_type: str, rule: str, seed: int, tmp_path: Path) -> None:
    options = CompileOptions(
        weight_type=weight_type,
        post_weight_type=weight_type,
        scale_rule=rule,
        kv_cache_len=16,
        prefill_len=8,
        layout_seed=seed,
        corrections=0.3 if weight_type == "s8" else 0.0,
    )
    checkpoint = NoiseCheckpoint(CONFIG, 5)
    compile_model(checkpoint, tmp_path, options)
    for kind in ("layer", "post"):
        found = decode_engine(tmp_path / engine_file(CONFIG, 8, kind), checkpoint).layout
        true = engine_layout(CONFIG, options, kind)
        assert (found.kind, sorted(found.names())) == (kind, sorted(true.names()))
        for tensor in true.tensors:
            check_same_places(found[tensor.name], tensor)


def check_same_places(found: StoredTensor, true: StoredTensor) -> None:
    """Copies have no names of their own in an engine: the places of an element count, whatever the copy."""
    assert (found.shape, found.codec, len(found.copies)) == (true.shape, true.codec, len(true.copies))
    for index in range(len(true.copies[0].planes)):
        assert np.array_equal(places(found, index), places(true, index)), true.name
    if true.scales is not None and found.scales is not None:
        assert (found.scales.entry, found.scales.divisor) == (true.scales.entry, true.scales.divisor)
        one, other = (entries(tensor) for tensor in (found, true))
        assert np.array_equal(one, other), f"entries of {true.name}"


def places(tensor: StoredTensor, plane: int) -> np.ndarray:
    return np.sort([_of(copy.planes[plane], tensor) for copy in tensor.copies], axis=0)


def entries(tensor: StoredTensor) -> np.ndarray:
    """Equal entries of a row are one class: the row's places count."""
    tables = [copy.entries.addresses(0, tensor.shape[0]) for copy in tensor.copies if copy.entries is not None]
    if tables[0].shape[1] == 1 or (tensor.scales is not None and tensor.scales.shared):
        return np.sort(np.concatenate(tables, axis=1), axis=1)
    return np.sort(tables, axis=0)


def _of(plane: Plane, tensor: StoredTensor) -> np.ndarray:
    return plane.addresses(0, tensor.shape[0], tensor.shape[1])
