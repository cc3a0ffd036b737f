"""Scale entries that are laid out as the rows beside which they stand: block by block, or all in one area."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod

import numpy as np

from layouts.algebra import Digit, Layout, Piece
from layouts.anchors.claims import Claims
from layouts.anchors.scan import Flags
from layouts.anchors.sheet_pieces import Pieces
from layouts.anchors.sparse import SparseWords
from layouts.digits import Int64, offsets
from layouts.errors import LayoutError

STEPS = (1, 2, 3, 4)
SAMPLED = 64
FIRST = 6

Digits = tuple[Digit, ...]


def regular_entries(
    words: SparseWords, raw: Int64, pieces: Sequence[Pieces], size: int, claims: Claims
) -> Pieces | None:
    """Pieces of the entries of one copy, None where it has no such entries.

    Parameters
    ----------
    words : of all values of `raw`, those that belong to nothing else
    raw : expected entries `[rows, groups]`
    pieces : of each plane of the copy's integers
    size : bytes of an entry
    """
    ways = (_copy(words, raw, own, size, claims) for own in pieces)
    return next((way for way in ways if way is not None), None)


def _copy(words: SparseWords, raw: Int64, pieces: Pieces, size: int, claims: Claims) -> Pieces | None:
    """All rows of a copy in one area, or each piece's by itself."""
    first = [piece for piece in pieces if piece.col == min(p.col for p in pieces if p.row == piece.row)]
    rows = [(piece.row, piece.row_stop, piece.layout.rows) for piece in sorted(first, key=lambda piece: piece.row)]
    low = min(piece.layout.extent[0] for piece in pieces) // 8
    high = max(piece.layout.extent[1] for piece in pieces) // 8
    joined = all(a[1] == b[0] for a, b in pairwise(rows))
    ways = ([[(rows[0][0], rows[-1][1], ())]] if joined else []) + [rows]
    for way, step, slow in product(ways, STEPS, (True, False) if raw.shape[1] > 1 else (True,)):
        found: list[Piece] = []
        used = np.zeros(0, np.int64)
        for start, stop, digits in way:
            shapes = _shapes(raw[start:stop].shape, digits, 8 * size * step, slow)
            piece = _piece(words, raw[start:stop], start, list(shapes), size, (low, high), used)
            if piece is None:
                break
            found.append(piece)
            used = np.concatenate([used, piece.layout.expand().ravel()])
        else:
            for piece in found:
                claims.take(piece.layout.expand(), 8 * size)
            return tuple(found)
    return None


def _piece(
    words: SparseWords,
    raw: Int64,
    row: int,
    shapes: list[tuple[Digits, Digits]],
    size: int,
    near: tuple[int, int],
    used: Int64,
) -> Piece | None:
    """The nearest place at which every entry stands, under the first shape that has one."""
    codes = words.codes_of(raw)
    best: tuple[int, int, Digits, Digits] | None = None
    for rows, cols in shapes:
        at = (offsets(rows, 0, raw.shape[0])[:, None] + offsets(cols, 0, raw.shape[1])) // 8
        for base in _bases(words, codes, at):
            if np.isin(8 * (base + at), used).any():
                continue
            far = max(near[0] - base, base - near[1], 0)
            if best is None or far < best[0]:
                best = far, base, rows, cols
    if best is None:
        return None
    try:
        layout = Layout((raw.shape[0], raw.shape[1]), 8 * best[1], best[2], best[3], 8 * size)
    except LayoutError:
        return None
    return Piece(row, 0, layout)


def _shapes(shape: tuple[int, ...], digits: Digits, step: int, slow: bool) -> Iterator[tuple[Digits, Digits]]:
    """Digits of rows and groups: lanes of a block close together, then the digits of the rows beside which they stand.

    Parameters
    ----------
    step : bits from one entry to the next
    slow : entries of one group stand together, otherwise those of one row
    """
    rows, groups = shape
    for kept in range(len(digits), -1, -1):
        block = prod(digit.size for digit in digits[:kept]) if kept else 1
        lanes = min(block, rows) if digits and kept < len(digits) else rows
        outer = digits[kept:] if lanes < rows else ()
        if not slow:
            yield _whole(Digit(lanes, groups * step), *outer), _whole(Digit(groups, step))
            continue
        for held in dict.fromkeys((lanes, lanes + lanes % 2, block)):
            yield _whole(Digit(lanes, step), *outer), _whole(Digit(groups, held * step))


def _whole(*digits: Digit) -> Digits:
    return tuple(digit for digit in digits if digit.size > 1)


def _bases(words: SparseWords, codes: Int64, at: Int64) -> Iterator[int]:
    """Bytes from which on every entry stands where `at` puts it."""
    flat, expected = at.ravel(), codes.ravel()
    rarest = int(np.argmin(np.bincount(expected)[expected]))
    picked = np.unique(np.linspace(0, len(flat) - 1, min(len(flat), SAMPLED)).astype(np.int64))
    bases = words.places_of(int(expected[rarest])) - flat[rarest]
    for part in (picked[:: max(1, len(picked) // FIRST)], picked):
        table = words.codes_at(bases[:, None] + flat[part])
        bases = bases[(table == expected[part]).all(axis=1)]
    for base in bases.tolist():
        same: Flags = words.codes_at(base + flat) == expected
        if same.all():
            yield base
