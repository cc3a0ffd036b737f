"""Elements that corrections hide, rows of small copies, and entries that nothing tells apart."""

from __future__ import annotations

import numpy as np
import pytest

from layouts.encoding import encode_rows
from layouts.errors import DecodeRefused
from layouts.scale_rules import group_order
from layouts.sidecar import dump_layout
from layouts.stored import Plane
from layouts.view import write_tensor
from tests.helpers.marked_integers import GROUP, ROW, UP, IntegerToy, eight, plane
from tests.layouts.test_decode_integers import COLS, ROWS, SHAPE, engine

LINE = 320  # bits from a column to the next, in both copies


def _lines(first: int, rows: int, base: int) -> tuple[Plane, Plane, Plane]:
    def lines(low_bit: int, at: int) -> Plane:
        text = f"at {first},0  [{rows},{COLS}]  rows {rows}:4  cols {COLS}:{LINE}  width 4  base {at}"
        return plane(low_bit, 8 if low_bit else 0, text)

    held = plane(0, 0, f"at {first},0  [{rows},2]  rows {rows}:64  cols 2:32  width 32  base {base + LINE * COLS}")
    return lines(0, base), lines(4, base + 160), held


@pytest.mark.parametrize("rows", [2, 4, 11])
def test_a_column_that_is_corrected_in_one_copy_is_not_put_into_the_other(rows: int) -> None:
    layout = engine(eight(SHAPE, ROW, _lines(0, ROWS, 800), _lines(7, rows, 200_000)))
    toy = IntegerToy(layout)
    at = layout[UP].copies[0].planes[0].addresses(7, 7 + rows)[:, 16]
    for build in toy.builds[:2]:
        for bit in at:
            shift = np.uint8(bit % 8)
            fine = build[bit // 8] >> shift & np.uint8(15)
            build[bit // 8] ^= (fine ^ (fine + 1 if fine < 15 else fine - 1)) << shift
    assert dump_layout(toy.decode()) == dump_layout(layout)


@pytest.mark.parametrize("alike", [False, True])
def test_entries_of_groups_with_equal_values_are_refused(alike: bool) -> None:
    fine, coarse = (
        plane(bit, 2 * bit, f"at 0,0  [1,512]  rows 1:0  cols 512:8  width 4  base {bit}") for bit in (0, 4)
    )
    held = plane(0, 0, "at 0,0  [1,2]  rows 1:0  cols 2:-32  width 32  base 4128")
    stored = eight((1, 512), GROUP, (fine, coarse, held))
    values = np.linspace(-1, 1, 512, dtype=np.float32)[None]
    values[0, 256:] *= np.float32(1 if alike else 0.25)
    blob = np.zeros(520, np.uint8)
    write_tensor(blob, stored, encode_rows(stored, values))
    table = np.array([[512, 516]])
    if alike:
        with pytest.raises(DecodeRefused, match=f"{UP}: scale entries that the confirming build does not tell apart"):
            group_order(stored, table, blob, lambda _, rows: values[rows])
    else:
        assert group_order(stored, table, blob, lambda _, rows: values[rows]).tolist() == [1, 0]
