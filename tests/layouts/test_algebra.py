"""The layout algebra: canonical form, notation, addresses, refusals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece, parse_layout, parse_piece
from layouts.errors import LayoutError
from tests.helpers.layouts import layouts

FP32 = "[512,128]  rows (32,16):(32,132096)  cols 128:1024  width 32  base 0"


def test_fp32_engine_formula() -> None:
    """Measured on the public engine: byte(r, k) = 4*(r % 32) + 128*k + 16512*(r // 32)."""
    layout = parse_layout(FP32)
    r, k = np.arange(512)[:, None], np.arange(128)
    assert np.array_equal(layout.expand(), 8 * (4 * (r % 32) + 128 * k + 16512 * (r // 32)))
    assert layout.address(33, 5) == 8 * (4 + 128 * 5 + 16512)
    assert layout.extent == (0, 8 * (15 * 16512 + 127 * 128 + 31 * 4) + 32)
    assert str(layout) == FP32


def test_int8_engine_formula_in_nibbles() -> None:
    """Measured on the public engine, fine plane of W[64, 384]: 36 columns to a chunk, the last chunk partly used."""
    text = "[64,384]  rows (16,2,2):(6336,288,103424)  cols (36,11):(4,576)  width 4  base 3208256"
    r, k = np.arange(64)[:, None], np.arange(384)
    byte = 401032 + 12928 * (r // 32) + 36 * ((r // 16) % 2) + 792 * (r % 16) + 72 * (k // 36) + (k % 36) // 2
    assert np.array_equal(parse_layout(text).expand(), 8 * byte + 4 * (k % 2))


def test_canonical_merges_trims_and_drops() -> None:
    spelled = Layout(
        (100, 3), 0, (Digit(1, 5), Digit(8, 16), Digit(8, 128), Digit(4, 4096)), (Digit(1, 0), Digit(9, 2**20)), 16
    )
    assert spelled.rows == (Digit(64, 16), Digit(2, 4096))
    assert spelled.cols == (Digit(3, 2**20),)
    assert Layout((1, 1), 8, (), (), 8) == Layout((1, 1), 8, (Digit(1, 0),), (Digit(4, 3),), 8)


def test_canonical_trims_what_merging_overshoots() -> None:
    assert Layout((1, 3), 0, (), (Digit(2, 8), Digit(2, 16)), 8).cols == (Digit(3, 8),)


def test_one_element_axis_is_spelled() -> None:
    vector = Layout((1, 576), 40, (), (Digit(576, 16),), 16)
    assert str(vector) == "[1,576]  rows 1:0  cols 576:16  width 16  base 40"
    assert parse_layout(str(vector)) == vector


@given(layouts())
def test_text_round_trip(layout: Layout) -> None:
    assert parse_layout(str(layout)) == layout
    assert parse_piece(str(Piece(3, 4, layout))) == Piece(3, 4, layout)


@given(layouts())
def test_expand_is_address_and_extent_is_exact(layout: Layout) -> None:
    table = layout.expand()
    for r, c in ((0, 0), (layout.shape[0] - 1, layout.shape[1] - 1), (layout.shape[0] // 2, layout.shape[1] // 3)):
        assert layout.address(r, c) == table[r, c]
    assert layout.extent == (table.min(), table.max() + layout.width)
    assert np.array_equal(layout.expand(1, layout.shape[0]), table[1:])


@st.composite
def tangles(draw: st.DrawFn) -> tuple[tuple[int, int], list[Digit], list[Digit]]:
    """Digits with no order in their strides: about half of them overlap."""
    stride = st.integers(-40, 40).filter(bool)
    axes = [draw(st.lists(st.builds(Digit, st.integers(2, 4), stride), max_size=2)) for _ in range(2)]
    counts = [int(np.prod([d.size for d in axis])) for axis in axes]
    shape = tuple(draw(st.integers(count // 2 + 1, count)) for count in counts)
    return (shape[0], shape[1]), axes[0], axes[1]


@given(tangles(), st.integers(1, 6))
def test_disjointness_is_exact(tangle: tuple[tuple[int, int], list[Digit], list[Digit]], width: int) -> None:
    shape, rows, cols = tangle

    def offsets(n: int, digits: list[Digit]) -> list[int]:
        found = []
        for i in range(n):
            total = 0
            for digit in digits:
                i, step = divmod(i, digit.size)
                total += step * digit.stride
            found.append(total)
        return found

    flat = sorted(r + c for r in offsets(shape[0], rows) for c in offsets(shape[1], cols))
    overlapping = any(b - a < width for a, b in pairwise(flat))
    if overlapping:
        with pytest.raises(LayoutError, match="overlap"):
            Layout(shape, 10_000, tuple(rows), tuple(cols), width)
    else:
        layout = Layout(shape, 10_000, tuple(rows), tuple(cols), width)
        assert sorted(layout.expand().ravel() - 10_000) == flat


def test_a_partial_digit_may_run_back_along_the_stride_of_another() -> None:
    layout = Layout((1, 3), 8, (), (Digit(2, 1), Digit(2, -1)), 1)
    assert layout.expand().tolist() == [[8, 9, 7]]


def test_partial_block_may_be_used_by_the_other_axis() -> None:
    """33 rows in blocks of 32: the hole after row 32 holds the second column's elements."""
    layout = Layout((33, 2), 0, (Digit(32, 32), Digit(2, 1024)), (Digit(2, 1056),), 32)
    assert len(np.unique(layout.expand())) == 66


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[4,4]  rows 2:16  cols 4:64  width 16  base 0", "do not cover"),
        ("[4,4]  rows 4:16  cols 4:32  width 16  base 0", "overlap"),
        ("[4,4]  rows 4:16  cols 4:-64  width 16  base 0", "address out of range"),
        ("[4,4]  rows 4:0  cols 4:64  width 16  base 0", "stride 0"),
        ("[3,1]  rows (2,2):(100,4)  cols 1:0  width 8  base 0", "overlap"),
        ("[4,4]  rows 4:16  cols 4:16  width 16  base 0", "one stride"),
        ("[4,4]  rows 4:16  cols 4:64  width 65  base 0", "width out of range"),
        ("[0,4]  rows 1:0  cols 4:64  width 16  base 0", "shape out of range"),
        ("[4,4]  rows (2,2):16  cols 4:64  width 16  base 0", "differ in number"),
        ("[4,4]  rows 4:16  cols 4:64  width 16", "not a layout"),
        ("[4,4]  rows 4:16  cols 4:64  width 16  base -8", "not a layout"),
        ("[4,4]  rows 4:9999999999999999999  cols 4:64  width 16  base 0", "digit out of range"),
        ("[4,4]  rows 4:4611686018427387000  cols 4:64  width 16  base 0", "address out of range"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        parse_layout(text)


def test_address_outside_is_refused() -> None:
    with pytest.raises(LayoutError, match="outside the layout"):
        parse_layout(FP32).address(512, 0)


def test_piece_refusals() -> None:
    with pytest.raises(LayoutError, match="not a piece"):
        parse_piece(FP32)
    with pytest.raises(LayoutError, match="outside the tensor"):
        Piece(-1, 0, parse_layout(FP32))


def test_entangled_strides_are_refused_not_searched_for_ever() -> None:
    primes = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049)
    digits = tuple(Digit(900, p * 1000 + 1) for p in primes)
    with pytest.raises(LayoutError, match=r"overlap|entangled"):
        Layout((2**31, 1), 0, digits, (), 1)
