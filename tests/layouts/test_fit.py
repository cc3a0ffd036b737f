"""`fit` is the exact inverse of `expand`, splits where it must, and refuses the rest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece
from layouts.digits import boxes
from layouts.errors import FitRefused
from layouts.fit import fit
from tests.helpers.integers import published
from tests.helpers.layouts import layouts

Table = npt.NDArray[np.int64]


def assemble(pieces: tuple[Piece, ...], shape: tuple[int, int]) -> Table:
    table = np.full(shape, -1, np.int64)
    for piece in pieces:
        target = table[piece.row : piece.row_stop, piece.col : piece.col_stop]
        assert (target == -1).all()
        target[...] = piece.layout.expand()
    return table


@given(layouts() | layouts(4, grain=4))
def test_fit_is_inverse_of_expand(layout: Layout) -> None:
    assert fit(layout.expand(), layout.width) == (Piece(0, 0, layout),)


@pytest.mark.parametrize("kind", ["s8", "s4"])
@pytest.mark.parametrize("shape", [(1, 36), (15, 37), (17, 255), (31, 257), (33, 36), (320, 864), (1000, 600)])
def test_planes_and_entries_of_integers(kind: str, shape: tuple[int, int]) -> None:
    """Addresses that are multiples of 4 bits, and partial blocks, chunks and clusters."""
    for layout in published("w", shape, kind, 11).layouts():
        assert fit(layout.expand(), layout.width) == (Piece(0, 0, layout),)


def test_lines_of_64_rows_with_a_partial_block() -> None:
    layout = Layout((1000, 576), 8 * 4097, (Digit(64, 16), Digit(16, 16 * 64 * 577)), (Digit(576, 1024),), 16)
    assert fit(layout.expand(), 16) == (Piece(0, 0, layout),)


def test_rows_in_two_places() -> None:
    top = Layout((128, 40), 0, (Digit(64, 16), Digit(2, 64 * 16 * 41)), (Digit(40, 1024),), 16)
    rest = Layout((100, 40), 10**7, (Digit(32, 16), Digit(4, 32 * 16 * 50)), (Digit(40, 512),), 16)
    table = np.concatenate([top.expand(), rest.expand()])
    assert fit(table, 16) == (Piece(0, 0, top), Piece(128, 0, rest))


def test_one_column_structure_two_row_structures() -> None:
    """Separable as a whole, but the rows follow two rules: cut at a block, not inside one."""
    top = Layout((128, 40), 0, (Digit(64, 16), Digit(2, 10**6)), (Digit(40, 1024),), 16)
    rest = Layout((96, 40), 10**7, (Digit(32, 16), Digit(3, 10**6)), (Digit(40, 1024),), 16)
    table = np.concatenate([top.expand(), rest.expand()])
    assert fit(table, 16) == (Piece(0, 0, top), Piece(128, 0, rest))


def test_columns_in_two_places() -> None:
    left = Layout((100, 24), 0, (Digit(64, 16), Digit(2, 64 * 16 * 24)), (Digit(24, 1024),), 16)
    right = Layout((100, 40), 10**7, (Digit(32, 16), Digit(4, 32 * 16 * 40)), (Digit(40, 512),), 16)
    table = np.concatenate([left.expand(), right.expand()], axis=1)
    assert fit(table, 16) == (Piece(0, 0, left), Piece(0, 24, right))


def test_four_quarters_each_its_own_way() -> None:
    def quarter(base: int, block: int) -> Layout:
        rows = (Digit(block, 16), Digit(-(-48 // block), block * 16 * 50))
        return Layout((48, 50), base, rows, (Digit(50, block * 16),), 16)

    q = [quarter(10**6 * i, block) for i, block in enumerate((4, 8, 16, 12))]
    table = np.block([[q[0].expand(), q[1].expand()], [q[2].expand(), q[3].expand()]])
    assert fit(table, 16) == (Piece(0, 0, q[0]), Piece(0, 50, q[1]), Piece(48, 0, q[2]), Piece(48, 50, q[3]))


@given(st.data())
def test_pieces_reassemble_to_the_table(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, 29), max_size=3)))
    tables = []
    for i, (a, b) in enumerate(zip([0, *cuts], [*cuts, 30], strict=True)):
        line = data.draw(st.sampled_from([4, 8, 16]))
        gap = data.draw(st.integers(0, 3))
        rows = (Digit(line, 8), Digit(-(-(b - a) // line), 8 * line * (17 + gap)))
        tables.append(Layout((b - a, 17), 10**6 * i, rows, (Digit(17, 8 * line),), 8).expand())
    table = np.concatenate(tables)
    assert np.array_equal(assemble(fit(table, 8), table.shape), table)


@given(layouts(), st.data())
def test_rows_cut_out_of_a_layout_need_no_more_pieces_than_boxes(layout: Layout, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, layout.shape[0] - 1))
    stop = data.draw(st.integers(start + 1, layout.shape[0]))
    table = layout.expand(start, stop)
    pieces = fit(table, layout.width)
    assert np.array_equal(assemble(pieces, table.shape), table)
    assert len(pieces) <= len(list(boxes(layout.rows, start, stop)))


def test_rows_that_begin_inside_a_block() -> None:
    """58 rows to the end of the block, then whole blocks: the longest first run would be 116 and lose the phase."""
    layout = Layout((49152, 30), 0, (Digit(64, 16), Digit(768, 16 * 64 * 31)), (Digit(30, 1024),), 16)
    pieces = fit(layout.expand(6), 16)
    assert [(piece.row, piece.layout.rows) for piece in pieces] == [
        (0, (Digit(58, 16),)),
        (58, (layout.rows[0], Digit(767, 31744))),
    ]


def test_one_element_elsewhere() -> None:
    layout = Layout((700, 500), 0, (Digit(64, 16), Digit(11, 16 * 64 * 501)), (Digit(500, 1024),), 16)
    table = layout.expand()
    table[300, 7] = 10**12
    pieces = fit(table, 16)
    assert np.array_equal(assemble(pieces, table.shape), table)
    assert len(pieces) < 10


def test_noise_is_refused_and_names_the_first_break() -> None:
    table = Layout((300, 300), 0, (Digit(300, 16),), (Digit(300, 4800),), 16).expand()
    table[7:, 11:] += np.random.default_rng(1).integers(1, 9, (293, 289)) * 10**9
    with pytest.raises(FitRefused, match=r"\[7, 11\]: no layout of bounded size"):
        fit(table, 16)


def test_scattered_rows_are_refused() -> None:
    table = (np.random.default_rng(2).permutation(500)[:, None] * 10_000 + np.arange(20) * 16).astype(np.int64)
    with pytest.raises(FitRefused, match="no layout of bounded size"):
        fit(table, 16)


def test_missing_element_is_refused() -> None:
    table = np.arange(12, dtype=np.int64).reshape(3, 4) * 8
    table[1, 2] = -1
    with pytest.raises(FitRefused, match=r"\[1, 2\]: element is not placed"):
        fit(table, 8)


@pytest.mark.parametrize("table", [[[0, 0]], [[0], [0]], [[0, 8], [8, 16]], [[0, 4]]])
def test_two_elements_in_one_place_are_refused(table: list[list[int]]) -> None:
    with pytest.raises(FitRefused, match=r"stride|overlap"):
        fit(np.array(table, np.int64), 8)


@pytest.mark.parametrize("table", [np.zeros(3, np.int64), np.zeros((2, 2), np.uint64), np.zeros((0, 2), np.int64)])
def test_other_arrays_are_refused(table: Table) -> None:
    with pytest.raises(FitRefused, match="not a table"):
        fit(table, 8)
