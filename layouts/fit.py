"""From an observed table of addresses to the layouts that say the same: exact, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.algebra import Layout, Piece
from layouts.digits import Digit, Int64
from layouts.errors import FitRefused, LayoutError

MAX_PIECES = 64
MAX_DIGITS = 4
_BLOCK_ELEMENTS = 1 << 17
_BEAM = 16

Addresses = npt.NDArray[Any]
Segment = tuple[int, int, tuple[Digit, ...]]


def fit(addresses: Addresses, width: int) -> tuple[Piece, ...]:
    """Layouts whose addresses are exactly the given ones: one where one is enough, otherwise a partition.

    Parameters
    ----------
    addresses : bit address of each element, int64 `[rows, cols]`, row-major; negative = not known
    width : bits of one element

    Returns
    -------
    pieces in order of row, then column; `fit(layout.expand(), layout.width) == (Piece(0, 0, layout),)` for every
    layout of at most 4 digits an axis

    Raises
    ------
    FitRefused : an element that is not placed, two elements in one place, or more than 64 pieces of at most 4
        digits an axis; names the first element that breaks the pattern.
    """
    if addresses.ndim != 2 or addresses.dtype != np.int64 or 0 in addresses.shape:
        found = f"{addresses.dtype} {list(addresses.shape)}"
        raise FitRefused("not a table of addresses", expected="int64 [rows, cols]", found=found)
    _check_placed(addresses)
    pieces: list[Piece] = []
    pending = [(0, addresses.shape[0], 0, addresses.shape[1])]
    while pending:
        top, bottom, left, right = pending.pop()
        table = addresses[top:bottom, left:right]
        if not _separable(table):
            cut_rows, at = _best_cut(table, (top, left))
            if cut_rows:
                pending += [(top, top + at, left, right), (top + at, bottom, left, right)]
            else:
                pending += [(top, bottom, left, left + at), (top, bottom, left + at, right)]
        else:
            pieces += fit_lines(table[:, 0], table[0], (top, left), width)
        if len(pieces) + len(pending) > MAX_PIECES:
            raise _too_many(f"[{top}, {left}]")
    return tuple(sorted(pieces, key=lambda p: (p.row, p.col)))


def _blocks(table: Addresses) -> Iterator[tuple[int, Addresses]]:
    step = max(2, _BLOCK_ELEMENTS // table.shape[1])
    for start in range(0, table.shape[0], step):
        yield start, table[start : start + step]


def _check_placed(table: Addresses) -> None:
    for start, block in _blocks(table):
        if block.min() < 0:
            row, col = np.unravel_index(int(np.argmax(block < 0)), block.shape)
            raise FitRefused("element is not placed", where=f"[{start + int(row)}, {int(col)}]")


def _separable(table: Addresses) -> bool:
    """Whether address(r, c) = row part + column part for the whole table."""
    pattern = table[0] - table[0, 0]
    return all(bool((block - block[:, :1] == pattern).all()) for _, block in _blocks(table))


def _best_cut(table: Addresses, at: tuple[int, int]) -> tuple[bool, int]:
    """The line, row (True) or column, across which the largest share of the table stops being separable.

    A corner is an element whose step from its left neighbour differs from the step of the row above. In a partition
    every corner lies on a cut, so too many lines with corners mean too many pieces.
    """
    by_row, by_col = np.zeros(table.shape[0], np.int64), np.zeros(table.shape[1], np.int64)
    first: tuple[int, int] | None = None
    above = np.diff(table[:1], axis=1)
    for start, block in _blocks(table):
        steps = np.diff(block, axis=1)
        corners = steps != np.concatenate([above, steps[:-1]])
        above = steps[-1:]
        by_row[start : start + len(block)] = np.count_nonzero(corners, axis=1)
        by_col[1:] += np.count_nonzero(corners, axis=0)
        if first is None and corners.any():
            down, right = np.unravel_index(int(np.argmax(corners)), corners.shape)
            first = (at[0] + start + int(down), at[1] + int(right) + 1)
    forced = np.count_nonzero(by_row >= MAX_PIECES) + np.count_nonzero(by_col >= MAX_PIECES)
    if forced >= MAX_PIECES and first is not None:
        raise _too_many(f"[{first[0]}, {first[1]}]")
    row, col = _middle_maximum(by_row), _middle_maximum(by_col)
    if by_row[row] * table.shape[0] >= by_col[col] * table.shape[1]:
        return True, row
    return False, col


def _middle_maximum(counts: Int64) -> int:
    """Of equal maxima the middle one, so that halves are looked at, not all but one line."""
    equal = np.flatnonzero(counts == counts.max())
    return int(equal[len(equal) // 2])


def fit_lines(rows_line: Int64, cols_line: Int64, at: tuple[int, int], width: int) -> list[Piece]:
    """Pieces of a separable table, given by its first column and its first row: every segment of one with every one of the other.

    Parameters
    ----------
    rows_line, cols_line : bit addresses; their first elements are the same
    at : row and column of the tensor at which the table begins

    Raises FitRefused as `fit` does.
    """
    rows = _segments(rows_line, at, 0)
    cols = _segments(cols_line, at, 1)
    if len(rows) * len(cols) > MAX_PIECES:
        raise _too_many(f"[{at[0] + rows[-1][0]}, {at[1] + cols[-1][0]}]")
    pieces = []
    for r0, r1, row_digits in rows:
        for c0, c1, col_digits in cols:
            base = int(rows_line[r0] + cols_line[c0] - cols_line[0])
            try:
                layout = Layout((r1 - r0, c1 - c0), base, row_digits, col_digits, width)
            except LayoutError as error:
                raise FitRefused(error.reason, where=f"[{at[0] + r0}, {at[1] + c0}]", found=error.found) from error
            pieces.append(Piece(at[0] + r0, at[1] + c0, layout))
    return pieces


def _segments(line: Int64, at: tuple[int, int], axis: int) -> list[Segment]:
    """Cut a row or a column of addresses into the fewest runs that at most 4 digits describe, then the fewest digits.

    Breadth first over the ends of runs, the 16 farthest ends at each depth: a line that begins inside a block has to be
    cut at that block's end, which the longest run does not show.
    """
    ends: dict[int, list[Segment]] = {0: []}
    for _ in range(MAX_PIECES):
        longer: dict[int, list[Segment]] = {}
        for start, path in sorted(ends.items(), reverse=True)[:_BEAM]:
            try:
                runs = _leading_runs(line[start:])
            except LayoutError as error:
                raise FitRefused(error.reason, where=_element(at, axis, start), found=error.found) from error
            for digits, count in runs:
                found = [*path, (start, start + count, digits)]
                best = longer.get(start + count)
                if best is None or _digit_count(found) < _digit_count(best):
                    longer[start + count] = found
        if len(line) in longer:
            return longer[len(line)]
        ends = longer
    first = min(path[0][1] for path in ends.values())
    raise _too_many(_element(at, axis, first))


def _leading_runs(line: Int64) -> list[tuple[tuple[Digit, ...], int]]:
    """Ways to describe the beginning of a line: digits, and how many elements they hold.

    One for each number of digits, ending with a whole block, and one that ends where the pattern does.
    """
    line = line - line[0]
    runs: list[tuple[tuple[Digit, ...], int]] = [((), 1)]
    digits: tuple[Digit, ...] = ()
    block, complete = 1, True
    while complete and block < len(line) and len(digits) < MAX_DIGITS:
        heads = line[::block]
        stride = int(heads[1])
        size = _first_false(heads == np.arange(len(heads)) * stride)
        seen = line[: size * block]
        good = _matching(seen, block, stride)
        complete = good == len(seen)
        whole = size if complete else good // block
        if not complete and good % block:
            runs.append(((*digits, Digit(whole + 1, stride)), good))
        if whole > 1:
            digits = (*digits, Digit(whole, stride))
            block = prod(d.size for d in digits)
            runs.append((digits, min(block, len(line))))
    return runs


def _matching(seen: Int64, block: int, stride: int) -> int:
    """How many leading elements repeat the first block, `stride` farther each time."""
    whole = len(seen) // block
    steps = np.arange(whole) * stride
    same = (seen[: whole * block].reshape(whole, block) == steps[:, None] + seen[:block]).ravel()
    rest = seen[whole * block :]
    return _first_false(np.concatenate([same, rest == seen[: len(rest)] + whole * stride]))


def _digit_count(segments: list[Segment]) -> int:
    return sum(len(digits) for _, _, digits in segments)


def _element(at: tuple[int, int], axis: int, index: int) -> str:
    return f"[{at[0]}, {at[1] + index}]" if axis else f"[{at[0] + index}, {at[1]}]"


def _first_false(mask: npt.NDArray[np.bool_]) -> int:
    return len(mask) if mask.all() else int(np.argmin(mask))


def _too_many(where: str) -> FitRefused:
    expected = f"at most {MAX_PIECES} pieces of {MAX_DIGITS} digits an axis"
    return FitRefused("no layout of bounded size fits", where=where, expected=expected, found="more")
