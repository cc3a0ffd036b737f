"""Marks of a part of a blob against marks of the whole, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layouts.algebra import Layout, parse_layout
from layouts.errors import LayoutError
from layouts.marking import mark_tensor
from layouts.stored import EngineLayout
from tests.helpers.layouts import engines, layouts, one_copy

NORM = "input_layernorm.weight"


@given(engines())
def test_mark_is_the_bytes_of_expand(engine: EngineLayout) -> None:
    for stored in engine.tensors:
        mask, expected = np.zeros(engine.blob_bytes, np.uint8), np.zeros(engine.blob_bytes, np.uint8)
        mark_tensor(mask, stored)
        for layout in stored.layouts():
            for i in range(layout.width // 8):
                expected[layout.expand() // 8 + i] = 0xFF
        assert np.array_equal(mask, expected)


@given(layouts(16, grain=8), st.integers(-40, 400), st.integers(0, 300))
def test_a_part_is_the_slice_of_the_whole(layout: Layout, start: int, size: int) -> None:
    stored = one_copy(NORM, layout)
    whole = np.zeros(40 + max(layout.extent[1] // 8, start + size), np.uint8)
    mark_tensor(whole[40:], stored)
    part = np.zeros(size, np.uint8)
    mark_tensor(part, stored, start)
    assert np.array_equal(part, whole[40 + start : 40 + start + size])


@pytest.mark.parametrize("size", [1, 3, 7, 64, 1000])
def test_parts_of_interleaved_lines_make_the_whole(size: int) -> None:
    stored = one_copy(NORM, parse_layout("[20,2]  rows 20:32  cols 2:144  width 16  base 24"))
    whole = np.zeros(200, np.uint8)
    mark_tensor(whole, stored)
    assert np.count_nonzero(whole) == 80
    parts = [np.zeros(min(size, 200 - start), np.uint8) for start in range(0, 200, size)]
    for index, part in enumerate(parts):
        mark_tensor(part, stored, index * size)
    assert np.array_equal(np.concatenate(parts), whole)


def test_unaligned_layouts_are_refused() -> None:
    with pytest.raises(LayoutError, match="not aligned to 8 bits"):
        mark_tensor(
            np.zeros(100, np.uint8), one_copy(NORM, parse_layout("[2,2]  rows 2:36  cols 2:17  width 16  base 0"))
        )
