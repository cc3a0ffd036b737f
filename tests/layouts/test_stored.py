"""What an EngineLayout refuses to be, one test per cause."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from layouts.algebra import Digit, Layout, Piece
from layouts.errors import LayoutError
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from tests.helpers.layouts import engines, one_copy


def lines(rows: int, cols: int, base: int, line: int = 4) -> Layout:
    """Lines of `line` rows of 16 bits."""
    blocks = -(-rows // line)
    return Layout((rows, cols), base, (Digit(line, 16), Digit(blocks, 16 * line * cols)), (Digit(cols, 16 * line),), 16)


def plane(*places: tuple[int, int, Layout]) -> Plane:
    return Plane(tuple(Piece(row, col, layout) for row, col, layout in places))


@given(engines())
def test_lookup_and_order(engine: EngineLayout) -> None:
    assert [engine[name] for name in engine.names()] == list(engine.tensors)
    with pytest.raises(LayoutError, match="no such tensor"):
        engine["nothing"]


def test_plane_knows_its_rows_and_addresses() -> None:
    part = plane((8, 0, lines(4, 3, 0)), (2, 0, lines(2, 3, 4096)), (4, 0, lines(1, 3, 8192)))
    assert part.rows == ((2, 5), (8, 12))
    table = part.addresses(1, 9)
    assert table.shape == (8, 3)
    assert (table[[0, 4, 5, 6]] == -1).all()
    assert np.array_equal(table[1:3], lines(2, 3, 4096).expand())
    assert np.array_equal(table[7], lines(4, 3, 0).expand()[0])


def test_interleaved_tensors_are_accepted() -> None:
    """Two tensors in alternate 2-byte cells: extents cross, no byte is shared."""
    a, b = (one_copy(name, Layout((1, 10), base, (), (Digit(10, 32),), 16)) for name, base in (("a", 8), ("b", 24)))
    assert EngineLayout("post", "npu_params", 41, (a, b)).names() == ["a", "b"]


def test_interleaved_nibbles_are_told_apart() -> None:
    def nibbles(base: int) -> Plane:
        return Plane((Piece(0, 0, Layout((1, 6), base, (), (Digit(6, 8),), 4)),))

    def engine(second: int) -> EngineLayout:
        planes = [Plane(nibbles(at).pieces, bit, 4) for bit, at in ((0, 0), (4, second), (8, 48), (12, 52))]
        return EngineLayout("layer", "w", 12, (StoredTensor("w", (1, 6), "bf16", (Copy("decode", tuple(planes)),)),))

    assert engine(4).names() == ["w"]
    with pytest.raises(LayoutError, match="two elements in one place"):
        engine(2)


def test_one_shared_byte_is_found() -> None:
    a, b = (one_copy(name, Layout((1, 10), base, (), (Digit(10, 32),), 16)) for name, base in (("a", 0), ("b", 8)))
    with pytest.raises(LayoutError, match=r"b: two elements in one place \(found bits of a\)"):
        EngineLayout("layer", "npu_params", 100, (a, b))


def test_copies_of_one_tensor_may_not_overlap() -> None:
    copies = (Copy("decode", (plane((0, 0, lines(8, 3, 0))),)), Copy("prefill", (plane((4, 0, lines(4, 3, 192))),)))
    with pytest.raises(LayoutError, match="two elements in one place"):
        EngineLayout("layer", "npu_params", 100, (StoredTensor("w", (8, 3), "bf16", copies),))


def test_piece_outside_the_blob() -> None:
    with pytest.raises(LayoutError, match=r"w: piece outside the blob \(expected 376 bits, found 384\)"):
        EngineLayout("layer", "npu_params", 47, (one_copy("w", lines(8, 3, 0)),))


W = one_copy("w", lines(8, 3, 0))


@pytest.mark.parametrize(
    ("kind", "blob", "size", "tensors", "reason"),
    [
        ("tail", "npu_params", 100, (W,), "unknown kind"),
        ("layer", "npu params", 100, (W,), "not a name"),
        ("layer", "npu_params", -1, (), "size of the blob"),
        ("layer", "npu_params", 100, (W, W), "two tensors of one name"),
    ],
)
def test_engine_refusals(kind: str, blob: str, size: int, tensors: tuple[StoredTensor, ...], reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        EngineLayout(kind, blob, size, tensors)


FULL = Copy("decode", (plane((0, 0, lines(8, 3, 0))),))
PART = Copy("decode", (plane((0, 0, lines(4, 3, 0)), (5, 0, lines(3, 3, 1000))),))
BYTES = Plane((Piece(0, 0, Layout((8, 3), 0, (Digit(8, 24),), (Digit(3, 8),), 8)),))


@pytest.mark.parametrize(
    ("name", "shape", "codec", "copies", "reason"),
    [
        ("w w", (8, 3), "bf16", (FULL,), "not a name"),
        ("w", (8, 3), "bf17", (FULL,), "unknown codec"),
        ("w", (8, 3), "bf16", (), "number of copies"),
        ("w", (8, 3), "bf16", (FULL, FULL), "two copies of one name"),
        ("w", (9, 3), "bf16", (FULL,), "first copy lacks rows"),
        ("w", (8, 3), "bf16", (PART,), "first copy lacks rows"),
        ("w", (8, 4), "bf16", (FULL,), "differ in shape"),
        ("w", (7, 3), "bf16", (FULL,), "differ in shape"),
        ("w", (8, 3), "fp32", (FULL,), "do not make up fp32"),
        ("w", (8, 3), "bf16", (Copy("decode", (BYTES, BYTES)),), "do not follow each other"),
    ],
)
def test_tensor_refusals(name: str, shape: tuple[int, int], codec: str, copies: tuple[Copy, ...], reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        StoredTensor(name, shape, codec, copies)


def test_copy_refusals() -> None:
    with pytest.raises(LayoutError, match="number of planes"):
        Copy("decode", ())
    with pytest.raises(LayoutError, match="different rows"):
        Copy("decode", (plane((0, 0, lines(8, 3, 0))), plane((0, 0, lines(4, 3, 0)))))


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ([(0, 0, lines(8, 3, 0)), (4, 0, lines(4, 3, 1000))], "overlap"),
        ([(0, 0, lines(8, 3, 0)), (0, 2, lines(8, 3, 1000))], "overlap"),
        ([(0, 0, lines(8, 3, 0)), (0, 4, lines(8, 3, 1000))], "leave columns out"),
        ([(0, 1, lines(8, 3, 0))], "leave columns out"),
        ([(0, 0, lines(8, 3, 0)), (8, 0, lines(8, 2, 1000))], "leave columns out"),
        ([(0, 0, lines(8, 3, 0)), (8, 0, Layout((1, 3), 2000, (), (Digit(3, 8),), 8))], "differ in width"),
        ([], "number of pieces"),
    ],
)
def test_plane_refusals(places: list[tuple[int, int, Layout]], reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        Copy("decode", (plane(*places),))


def test_plane_field_refusals() -> None:
    pieces = FULL.planes[0].pieces
    with pytest.raises(LayoutError, match="bits of the plane"):
        Plane(pieces, bits=17)
    with pytest.raises(LayoutError, match="bits of the plane"):
        Plane(pieces, low_bit=-1)
    with pytest.raises(LayoutError, match="bias of the plane"):
        Plane(pieces, bias=1 << 16)
