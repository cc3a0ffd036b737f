"""Overlaps are found by search and by bitmap alike, and of large heads without a bitmap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layouts import overlap
from layouts.algebra import Digit, Layout, Piece, parse_layout
from layouts.errors import LayoutError
from layouts.overlap import check_no_overlap
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from tests.helpers.integers import published
from tests.helpers.layouts import layouts


def bits(layout: Layout) -> set[int]:
    return {int(at) + bit for at in layout.expand().ravel() for bit in range(layout.width)}


def refused(owned: list[tuple[str, Layout]]) -> bool:
    try:
        check_no_overlap(owned)
    except LayoutError as error:
        assert error.reason == "two elements in one place"
        return True
    return False


@settings(max_examples=300, deadline=None)
@given(st.lists(layouts(4, grain=4) | layouts(16, grain=4) | layouts(grain=1), min_size=2, max_size=3), st.data())
def test_search_and_bitmap_find_what_sets_of_bits_find(several: list[Layout], data: st.DataObject) -> None:
    shifted = [replace(each, base=each.base + data.draw(st.integers(0, 40))) for each in several]
    owned = [(f"t{i}", layout) for i, layout in enumerate(shifted)]
    sets = [bits(layout) for layout in shifted]
    expected = len(set().union(*sets)) < sum(map(len, sets))
    assert refused(owned) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "SMALL_CELLS", 0)
        assert refused(owned) == expected


@settings(max_examples=100, deadline=None)
@given(layouts(4, grain=4), st.integers(0, 400))
def test_one_layout_moved_against_itself(layout: Layout, shift: int) -> None:
    """Equal strides: what interleaves and what does not hangs on the shift alone."""
    other = replace(layout, base=layout.base + shift)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "SMALL_CELLS", 0)
        assert refused([("a", layout), ("b", other)]) == bool(bits(layout) & bits(other))


HEADS = [(49_152, 576), (262_144, 640), (151_936, 1024), (1000, 37)]


@pytest.mark.parametrize("kind", ["s8", "s4"])
@pytest.mark.parametrize("shape", HEADS)
def test_planes_and_entries_of_a_head_take_no_bitmap(
    kind: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "SMALL_CELLS", 0)
    monkeypatch.setattr(overlap, "_draw", None)
    stored = published("lm_head.weight", shape, kind, 5)
    size = max(layout.extent[1] for layout in stored.layouts()) // 8 + 1
    assert EngineLayout("post", "npu_params", size, (stored,))["lm_head.weight"] == stored


def moved(stored: StoredTensor, bits: int, entries: bool) -> StoredTensor:
    """The tensor with its last plane, or its scale entries, so many bits farther."""
    copy = stored.copies[0]
    plane = copy.entries if entries else copy.planes[-1]
    assert plane is not None
    (piece,) = plane.pieces
    plane = replace(plane, pieces=(Piece(0, 0, replace(piece.layout, base=piece.layout.base + bits)),))
    planes = copy.planes if entries else (*copy.planes[:-1], plane)
    return replace(stored, copies=(Copy(copy.name, planes, plane if entries else copy.entries),))


@pytest.mark.parametrize(("bits", "entries"), [(-4, False), (4, False), (-8, True), (-128, True)])
def test_a_plane_of_a_head_that_is_one_step_off_is_found(bits: int, entries: bool) -> None:
    stored = published("lm_head.weight", (262_144, 648), "s8", 1000)  # whole chunks: no unused slot before the entries
    with pytest.raises(LayoutError, match=r"lm_head\.weight: two elements in one place"):
        EngineLayout("post", "npu_params", 1 << 28, (moved(stored, bits, entries),))


def test_one_element_in_a_partly_used_block_is_found() -> None:
    """The other tensor has one element in a gap, and one in or behind the last row of the last block."""
    big = parse_layout("[100001,512]  rows (32,3126):(4,65664)  cols 512:128  width 4  base 0")
    last = big.address(100_000, 511)
    free = big.address(99_999, 511) + 65_664
    for at, expected in ((last, True), (last + 4, False), (free, False)):
        other = Layout((1, 2), 65_540, (), (Digit(2, at - 65_540),), 4)
        assert refused([("big", big), ("other", other)]) == expected


def test_far_interleaving_is_searched() -> None:
    far = [(name, Layout((1, 2), base, (), (Digit(2, 1 << 48),), 16)) for name, base in (("a", 0), ("b", 24))]
    assert not refused(far)
    assert refused([*far, ("c", Layout((1, 1), (1 << 48) + 39, (), (), 8))])


def test_entangled_and_wide_is_refused_before_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides of two layouts that have nothing in common, over more cells than a bitmap may have."""
    monkeypatch.setattr(overlap, "MAX_STEPS", 1000)
    noise = np.random.default_rng(0)

    def entangled(base: int) -> Layout:
        digits = [Digit(2, (1 << 30 + i) + int(noise.integers(1 << 29)) * (i + 1)) for i in range(16)]
        return Layout((256, 256), base, tuple(digits[:8]), tuple(digits[8:]), 1)

    with pytest.raises(LayoutError, match=r"pieces interleaved too widely to check \(found \d+ cells\)"):
        check_no_overlap([("a", entangled(0)), ("b", entangled(1 << 40))])


def test_pieces_that_are_many_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """More pairs than the search may look at: a bitmap says the same."""
    monkeypatch.setattr(overlap, "SMALL_CELLS", 0)
    monkeypatch.setattr(overlap, "MAX_STEPS", 1000)
    lines = [(f"t{i}", Layout((1, 50), 16 * i, (), (Digit(50, 1600),), 16)) for i in range(100)]
    assert not refused(lines)
    assert refused([*lines, ("t", Layout((1, 1), 1601, (), (), 4))])


def test_planes_share_no_bit_either() -> None:
    def plane(base: int, low_bit: int) -> Plane:
        return Plane((Piece(0, 0, Layout((1, 6), base, (), (Digit(6, 8),), 4)),), low_bit)

    for base, expected in ((4, False), (0, True)):
        planes = (plane(0, 0), plane(base, 4))
        assert refused([("w", piece.layout) for each in planes for piece in each.pieces]) == expected
