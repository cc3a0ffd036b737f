"""Which of two places of a row belongs to which copy: told by the simpler layouts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from layouts.algebra import Piece
from layouts.errors import FitRefused

Copies = list[tuple[Piece, ...]]
"""Pieces of the complete copy, then of the other one."""


def simplest_copies(runs: int, split: Callable[[tuple[bool, ...]], Copies]) -> Copies:
    """The simplest of all splits: pieces, digits, then the span of the complete copy; ties go to the lower places.

    Only the copies' names hang on it: a refit writes all of them.

    Parameters
    ----------
    runs : ranges of rows that are stored twice
    split : fits the copies, given for each run whether the complete copy takes the higher places

    Raises
    ------
    FitRefused : no split fits
    """
    best, refusal = None, None
    for choice in product((False, True), repeat=runs):
        try:
            found = split(choice)
        except FitRefused as error:
            refusal = error
            continue
        if best is None or _complexity(found) < _complexity(best):
            best = found
    if best is None:
        raise refusal or FitRefused("no choice of places fits")
    return best


def _complexity(copies: Copies) -> tuple[int, int, int]:
    pieces = [piece for own in copies for piece in own]
    digits = sum(len(piece.layout.rows) + len(piece.layout.cols) for piece in pieces)
    extents = [piece.layout.extent for piece in copies[0]]
    return len(pieces), digits, max(stop for _, stop in extents) - min(start for start, _ in extents)
