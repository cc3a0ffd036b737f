"""Where the rows of one plane stand, row by row: a base and a profile of columns; and the pieces that say the same."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from layouts.algebra import Piece
from layouts.digits import Int64
from layouts.errors import DecodeRefused
from layouts.fit import MAX_PIECES, fit, fit_lines
from layouts.simplest import Copies, simplest_copies

MAX_RUNS = 10


@dataclass
class RowPlaces:
    """Element (r, c) stands at `base[r] + profiles[kind[r]][c]`; `base` is -1 for rows that are not stored here.

    base : int64 `[rows]`
    kind : int32 `[rows]`
    profiles : int64 `[cols]` each, the first column 0, no two equal
    """

    base: Int64
    kind: npt.NDArray[np.int32]
    profiles: list[Int64]

    def of(self, rows: Int64) -> Int64:
        """Addresses of rows, all of them stored, `[rows, cols]`."""
        kinds, index = np.unique(self.kind[rows], return_inverse=True)
        profiles = np.stack([self.profiles[kind] for kind in kinds])
        table: Int64 = self.base[rows, None] + profiles[index.ravel()]
        return table

    def at(self, rows: Int64, cols: Int64) -> Int64:
        """Addresses of single elements of stored rows."""
        addresses = self.base[rows].copy()
        for kind in np.unique(self.kind[rows]):
            own = self.kind[rows] == kind
            addresses[own] += self.profiles[kind][cols[own]]
        return addresses

    def pieces(self, width: int, unit: int) -> tuple[Piece, ...]:
        """Exact pieces, for addresses counted in `unit` bits. Raises FitRefused."""
        stored = _runs(self.base >= 0)
        runs = [(start, stop) for run in stored for start, stop in self._kinds(*run)]
        if len(runs) > MAX_PIECES:  # no row is like another: columns are cut apart, too
            return tuple(p for run in stored for p in _moved(fit(self.of(np.arange(*run)) * unit, width), run[0]))
        found: list[Piece] = []
        for start, stop in runs:
            columns = (self.base[start] + self.profiles[self.kind[start]]) * unit
            found += fit_lines(self.base[start:stop] * unit, columns, (start, 0), width)
        return tuple(found)

    def _kinds(self, start: int, stop: int) -> list[tuple[int, int]]:
        cuts = np.flatnonzero(np.diff(self.kind[start:stop])) + start + 1
        edges = [start, *(int(cut) for cut in cuts), stop]
        return list(pairwise(edges))


def copies_of(first: RowPlaces, second: RowPlaces | None, width: int, unit: int) -> list[tuple[Piece, ...]]:
    """Pieces of the complete copy and, for rows that are stored twice, of the other one.

    Which of two places belongs to which copy is told by the simpler layouts: pieces, digits, then the span of the complete
    copy; ties go to the places of `first`. Only the copies' names hang on it, for every copy is written.

    Raises
    ------
    FitRefused : no choice fits
    DecodeRefused : too many separate runs of copied rows
    """
    if second is None:
        return [first.pieces(width, unit)]
    runs = _runs(second.base >= 0)
    if len(runs) > MAX_RUNS:
        raise DecodeRefused("too many separate runs of copied rows", expected=f"at most {MAX_RUNS}", found=len(runs))
    merged = first.profiles + second.profiles
    low = RowPlaces(first.base, first.kind, merged)
    high = RowPlaces(second.base, second.kind + np.int32(len(first.profiles)), merged)

    def split(choice: tuple[bool, ...]) -> Copies:
        exchanged = np.zeros(len(first.base), bool)
        for (start, stop), swap in zip(runs, choice, strict=True):
            exchanged[start:stop] = swap
        return [p.pieces(width, unit) for p in (_choose(low, high, exchanged), _choose(high, low, exchanged))]

    return simplest_copies(len(runs), split)


def _choose(places: RowPlaces, other: RowPlaces, exchanged: npt.NDArray[np.bool_]) -> RowPlaces:
    base = np.where(exchanged, other.base, places.base)
    return deduplicated(base, np.where(exchanged, other.kind, places.kind), places.profiles)


def deduplicated(base: Int64, kind: npt.NDArray[np.int32], profiles: list[Int64]) -> RowPlaces:
    """Equal profiles are one."""
    index: dict[bytes, int] = {}
    renamed = np.array([index.setdefault(profile.tobytes(), len(index)) for profile in profiles], np.int32)
    kept = [np.frombuffer(data, np.int64) for data in index]
    return RowPlaces(base, renamed[kind], kept)


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Maximal ranges of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]])))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def _moved(pieces: tuple[Piece, ...], row: int) -> list[Piece]:
    return [Piece(piece.row + row, piece.col, piece.layout) for piece in pieces]
