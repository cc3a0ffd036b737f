"""Planes of bits, and the copies of a tensor that they make up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from layouts.algebra import MAX_AXIS, Piece
from layouts.digits import Int64
from layouts.errors import LayoutError
from layouts.names import check_count, check_name
from layouts.tiling import RowRange, check_tiling, row_ranges

MAX_PIECES_PER_PLANE = 4096
_RECT = re.compile(r"at (\d{1,10}),(\d{1,10})\s+\[(\d{1,10}),(\d{1,10})\]", re.ASCII)


@dataclass(frozen=True)
class Rect:
    """A rectangle of a tensor's elements."""

    row: int
    col: int
    rows: int
    cols: int

    def __post_init__(self) -> None:
        if min(self.row, self.col) < 0 or min(self.rows, self.cols) < 1:
            raise LayoutError("not a rectangle", found=str(self))
        if max(self.row_stop, self.col_stop) > MAX_AXIS:
            raise LayoutError("rectangle outside the tensor", found=str(self))

    @property
    def row_stop(self) -> int:
        return self.row + self.rows

    @property
    def col_stop(self) -> int:
        return self.col + self.cols

    def __str__(self) -> str:
        return f"at {self.row},{self.col}  [{self.rows},{self.cols}]"


def parse_rect(text: str) -> Rect:
    """The rectangle that `str` writes as `text`. Raises LayoutError for anything else."""
    match = _RECT.fullmatch(text.strip())
    if match is None:
        raise LayoutError("not a rectangle", expected="at row,col  [r,c]", found=repr(text[:80]))
    row, col, rows, cols = map(int, match.groups())
    return Rect(row, col, rows, cols)


@dataclass(frozen=True)
class Plane:
    """Bits `low_bit .. low_bit + bits` of each stored integer, kept as `field + bias` where the pieces say.

    `bits` is by default the width of the pieces. The pieces are rectangles of the tensor that do not overlap; together with
    what is absent from the copy they hold whole rows, not necessarily all of them.
    """

    pieces: tuple[Piece, ...]
    low_bit: int = 0
    bits: int = 0
    bias: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.pieces) <= MAX_PIECES_PER_PLANE:
            raise LayoutError("number of pieces out of range", expected="1 to 4096", found=len(self.pieces))
        widths = {piece.layout.width for piece in self.pieces}
        if len(widths) != 1:
            raise LayoutError("pieces of one plane differ in width", found=sorted(widths))
        object.__setattr__(self, "pieces", tuple(sorted(self.pieces, key=lambda p: (p.row, p.col))))
        object.__setattr__(self, "bits", self.bits or self.width)
        if not (0 <= self.low_bit < 64 and 1 <= self.bits <= self.width):
            raise LayoutError("bits of the plane out of range", expected=f"1 to {self.width}", found=self.bits)
        if not 0 <= self.bias < 1 << self.width:
            raise LayoutError("bias of the plane out of range", expected=f"{self.width} bits", found=self.bias)

    @property
    def width(self) -> int:
        """Bits of one stored element."""
        return self.pieces[0].layout.width

    @property
    def cols(self) -> int:
        return max(piece.col_stop for piece in self.pieces)

    @cached_property
    def rows(self) -> tuple[RowRange, ...]:
        """Ascending ranges of rows that the plane holds anything of, neighbours joined."""
        return row_ranges(self.pieces)

    def addresses(self, start: int, stop: int, cols: int | None = None) -> Int64:
        """Bit addresses of rows `start:stop`, int64 `[stop - start, cols]`; -1 where the plane holds nothing."""
        found = np.full((stop - start, self.cols if cols is None else cols), -1, np.int64)
        for piece in self.pieces:
            first, end = max(start, piece.row), min(stop, piece.row_stop)
            if first < end:
                target = found[first - start : end - start, piece.col : piece.col_stop]
                target[...] = piece.layout.expand(first - piece.row, end - piece.row)
        return found


@dataclass(frozen=True)
class Copy:
    """One instance of a tensor or of some of its rows: `decode`, `prefill` …

    entries : places the scale entries of the same rows, `[rows, groups]`; None for float tensors
    bias : places the bias entries of the same rows, `[rows, 1]`; None where the tensor has none
    absent : elements that the compiler has dropped; they and the pieces of each plane tile the rows

    Raises LayoutError for planes that hold different rows, or some element twice or not at all.
    """

    name: str
    planes: tuple[Plane, ...]
    entries: Plane | None = None
    bias: Plane | None = None
    absent: tuple[Rect, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        check_count("planes", self.name, len(self.planes), 8)
        if len(self.absent) > MAX_PIECES_PER_PLANE:
            raise LayoutError("too many absent rectangles", where=self.name, expected="at most 4096")
        object.__setattr__(self, "absent", tuple(sorted(self.absent, key=lambda rect: (rect.row, rect.col))))
        for plane in self.planes:
            check_tiling([*plane.pieces, *self.absent], self.name)
        if any(row_ranges([*plane.pieces, *self.absent]) != self.rows for plane in self.planes):
            raise LayoutError("planes of one copy hold different rows", where=self.name)
        for what, beside in (("scale", self.entries), ("bias", self.bias)):
            if beside is not None:
                check_tiling(beside.pieces, self.name)
                if beside.rows != self.rows:
                    raise LayoutError(f"{what} entries and planes of one copy hold different rows", where=self.name)

    @cached_property
    def rows(self) -> tuple[RowRange, ...]:
        """Ascending ranges of rows that the copy holds."""
        return row_ranges([*self.planes[0].pieces, *self.absent])

    @property
    def cols(self) -> int:
        return max([self.planes[0].cols, *(rect.col_stop for rect in self.absent)])

    def everything(self) -> Iterator[Plane]:
        """The planes, then the places of scale entries and of bias entries."""
        yield from self.planes
        yield from (beside for beside in (self.entries, self.bias) if beside is not None)

    def absent_windows(self, start: int, stop: int) -> Iterator[tuple[slice, slice]]:
        """Rows, counted from `start`, and columns of what is absent from rows `start:stop`."""
        for rect in self.absent:
            first, end = max(start, rect.row), min(stop, rect.row_stop)
            if first < end:
                yield slice(first - start, end - start), slice(rect.col, rect.col_stop)

    def present(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Which elements of rows `start:stop` are stored, `[stop - start, cols]`."""
        stored = np.ones((stop - start, self.cols), np.bool_)
        for window in self.absent_windows(start, stop):
            stored[window] = False
        return stored
