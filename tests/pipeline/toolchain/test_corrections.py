"""Sparse one-step corrections: how many, where, and what they depend on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from layouts.encoding import Encoded
from layouts.stored import StoredTensor
from pipeline.toolchain.corrections import correct
from pipeline.toolchain.memory_map import draw_map
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.placed import Item

Int8 = npt.NDArray[np.int8]


def tensor(rows: int, cols: int, weight_type: str = "s8", name: str = "w") -> StoredTensor:
    item = Item(name, (rows, cols), weight_type, CompileOptions(weight_type).scales(weight_type))
    return draw_map([item], 0, "layer", share=0).placed[name].stored()


def noise(rows: int, cols: int, seed: int = 0) -> Int8:
    return np.random.default_rng(seed).integers(-127, 128, (rows, cols)).astype(np.int8)


def moves(stored: StoredTensor, q: Int8, rate: float, layer: int = 0, first: int = 0) -> npt.NDArray[np.int16]:
    """Corrected minus given integers."""
    found = correct(stored, Encoded(q.view(np.uint8)), layer, first, rate)
    return found.raw.view(np.int8).astype(np.int16) - q


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("cols", [256, 576, 3000])
def test_as_many_as_expected(rate: float, cols: int) -> None:
    moved = moves(tensor(3000, cols), noise(3000, cols), rate)
    assert np.abs(moved).max() == 1
    assert np.count_nonzero(moved, axis=1).max() == 1
    assert abs(np.count_nonzero(moved) / 3000 - rate) < 0.04
    assert 0.4 < (moved[moved != 0] > 0).mean() < 0.6
    assert len(np.unique(np.nonzero(moved)[1])) > 50


@pytest.mark.parametrize(("rows", "cols"), [(1000, 36), (33, 37), (15, 16), (1, 255), (500, 1)])
def test_never_more_than_one_element_in_256(rows: int, cols: int) -> None:
    moved = moves(tensor(rows, cols), noise(rows, cols), 1.0)
    assert np.count_nonzero(moved) <= rows * cols // 256
    assert (np.count_nonzero(moved) > 0) == (rows * cols >= 256)


def test_the_range_is_never_left() -> None:
    q = noise(2000, 300)
    q[:] = np.where(q > 0, 127, -127)
    moved = moves(tensor(2000, 300), q, 1.0)
    assert np.count_nonzero(moved) > 1900
    assert (np.abs(q + moved) <= 127).all()


def test_zeros_stay() -> None:
    """A group of zeros has a scale of 1: a step there would be a weight of 1."""
    assert not moves(tensor(500, 300), np.zeros((500, 300), np.int8), 1.0).any()


def test_seeded_by_tensor_layer_row_and_content() -> None:
    q = noise(400, 300)
    same = moves(tensor(400, 300), q, 0.5)
    assert np.array_equal(moves(tensor(400, 300), q, 0.5), same)
    others = [
        moves(tensor(400, 300, name="v"), q, 0.5),
        moves(tensor(400, 300), q, 0.5, layer=1),
        moves(tensor(400, 300), q, 0.5, first=1),
        moves(tensor(400, 300), noise(400, 300, 1), 0.5),
    ]
    for other in others:
        assert np.count_nonzero((other != 0) & (same != 0)) < 5
    assert len({other.tobytes() for other in others}) == len(others)


def test_one_changed_integer_changes_no_other_row() -> None:
    q = noise(400, 300)
    changed = q.copy()
    changed[7, 200] = -q[7, 200]
    differs = (moves(tensor(400, 300), changed, 1.0) != moves(tensor(400, 300), q, 1.0)).any(axis=1)
    assert np.flatnonzero(differs).tolist() == [7]


def test_ranges_of_rows_are_corrected_as_the_whole() -> None:
    q, stored = noise(400, 40), tensor(400, 40)
    parts = [moves(stored, q[at : at + 37], 1.0, first=at) for at in range(0, 400, 37)]
    assert np.array_equal(np.concatenate(parts), moves(stored, q, 1.0))


def test_rate_0_and_s4_have_none() -> None:
    assert not moves(tensor(400, 300), noise(400, 300), 0.0).any()
    assert not moves(tensor(400, 300, "s4"), noise(400, 300), 1.0).any()
