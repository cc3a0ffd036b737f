"""Where every element of a matrix lives, in bits: CuTe's `shape:stride` notation, one list of digits per axis.

    [512,128]  rows (32,16):(32,132096)  cols 128:1024  width 32  base 0

Bit address of element (r, c): `base + sum(row digit * stride) + sum(column digit * stride)`. A vector is `[1, n]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from layouts.digits import MAX_BITS, Digit, Int64, canonical, offsets, span
from layouts.disjoint import check_disjoint
from layouts.errors import LayoutError

__all__ = ["Digit", "Layout", "Piece", "parse_layout", "parse_piece"]

MAX_AXIS = 1 << 31


@dataclass(frozen=True)
class Layout:
    """Bit addresses of a `[rows, cols]` matrix of `width`-bit elements; equal layouts compare equal.

    Parameters
    ----------
    shape : rows, columns
    base : address of element (0, 0) in bits
    rows, cols : digits of each axis, fastest first; stored in their one canonical form
    width : bits of one element, 1 to 64

    Raises
    ------
    LayoutError : digits that do not cover an axis, an address below 0 or beyond 2**62, elements that overlap.
    """

    shape: tuple[int, int]
    base: int
    rows: tuple[Digit, ...]
    cols: tuple[Digit, ...]
    width: int

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or not all(1 <= n <= MAX_AXIS for n in self.shape):
            raise LayoutError("shape out of range", expected="two axes of 1 to 2**31", found=list(self.shape))
        if not 1 <= self.width <= 64:
            raise LayoutError("width out of range", expected="1 to 64 bits", found=self.width)
        object.__setattr__(self, "shape", (int(self.shape[0]), int(self.shape[1])))
        object.__setattr__(self, "rows", canonical(self.shape[0], self.rows))
        object.__setattr__(self, "cols", canonical(self.shape[1], self.cols))
        first, end = self.extent
        if first < 0 or end > MAX_BITS:
            raise LayoutError("address out of range", expected="0 to 2**62 bits", found=f"{first} to {end}")
        check_disjoint(self.shape, self.rows, self.cols, self.width)

    @property
    def extent(self) -> tuple[int, int]:
        """First bit and the bit after the last one."""
        row_low, row_high = span(self.rows, self.shape[0])
        col_low, col_high = span(self.cols, self.shape[1])
        return self.base + row_low + col_low, self.base + row_high + col_high + self.width

    def address(self, row: int, col: int) -> int:
        """Bit address of one element. Raises LayoutError outside the shape."""
        if not (0 <= row < self.shape[0] and 0 <= col < self.shape[1]):
            raise LayoutError("element outside the layout", expected=list(self.shape), found=[row, col])
        return self.base + _offset(self.rows, row) + _offset(self.cols, col)

    def expand(self, start: int = 0, stop: int | None = None) -> Int64:
        """Bit addresses of rows `start:stop`, int64 `[rows, cols]`."""
        row = offsets(self.rows, start, self.shape[0] if stop is None else stop)
        col = offsets(self.cols, 0, self.shape[1])
        return (row + self.base)[:, None] + col

    def __str__(self) -> str:
        axes = f"rows {_spell(self.rows)}  cols {_spell(self.cols)}"
        return f"[{self.shape[0]},{self.shape[1]}]  {axes}  width {self.width}  base {self.base}"


@dataclass(frozen=True)
class Piece:
    """A rectangle of a tensor: its first row and column there, and the layout of its own elements."""

    row: int
    col: int
    layout: Layout

    def __post_init__(self) -> None:
        if not (0 <= self.row <= MAX_AXIS and 0 <= self.col <= MAX_AXIS):
            raise LayoutError("piece outside the tensor", found=f"{self.row},{self.col}")

    @property
    def row_stop(self) -> int:
        return self.row + self.layout.shape[0]

    @property
    def col_stop(self) -> int:
        return self.col + self.layout.shape[1]

    def __str__(self) -> str:
        return f"at {self.row},{self.col}  {self.layout}"


_NUMBERS = r"(-?\d{1,19}|\(-?\d{1,19}(?:,-?\d{1,19})*\))"
_LAYOUT = re.compile(
    rf"\[(\d{{1,10}}),(\d{{1,10}})\]\s+rows\s+{_NUMBERS}:{_NUMBERS}\s+cols\s+{_NUMBERS}:{_NUMBERS}"
    r"\s+width\s+(\d{1,2})\s+base\s+(\d{1,19})",
    re.ASCII,
)
_PIECE = re.compile(r"at (\d{1,10}),(\d{1,10})\s+(.*)", re.ASCII)


def parse_layout(text: str) -> Layout:
    """The layout that `str` writes as `text`. Raises LayoutError for anything else."""
    match = _LAYOUT.fullmatch(text.strip())
    if match is None or len(text) > 1000:
        raise LayoutError("not a layout", expected="[r,c]  rows …  cols …  width …  base …", found=repr(text[:80]))
    rows, cols, row_sizes, row_strides, col_sizes, col_strides, width, base = match.groups()
    return Layout(
        (int(rows), int(cols)), int(base), _digits(row_sizes, row_strides), _digits(col_sizes, col_strides), int(width)
    )


def parse_piece(text: str) -> Piece:
    """The piece that `str` writes as `text`. Raises LayoutError for anything else."""
    match = _PIECE.fullmatch(text.strip())
    if match is None:
        raise LayoutError("not a piece", expected="at row,col  [r,c]  rows …", found=repr(text[:80]))
    return Piece(int(match[1]), int(match[2]), parse_layout(match[3]))


def _offset(digits: Iterable[Digit], index: int) -> int:
    total = 0
    for digit in digits:
        index, step = divmod(index, digit.size)
        total += step * digit.stride
    return total


def _spell(digits: tuple[Digit, ...]) -> str:
    if not digits:
        return "1:0"
    if len(digits) == 1:
        return f"{digits[0].size}:{digits[0].stride}"
    return f"({','.join(str(d.size) for d in digits)}):({','.join(str(d.stride) for d in digits)})"


def _digits(sizes: str, strides: str) -> tuple[Digit, ...]:
    pair = [[int(n) for n in side.strip("()").split(",")] for side in (sizes, strides)]
    if len(pair[0]) != len(pair[1]):
        raise LayoutError("sizes and strides differ in number", expected=len(pair[0]), found=len(pair[1]))
    return tuple(Digit(size, stride) for size, stride in zip(*pair, strict=True))
