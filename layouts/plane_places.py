"""Places of whole planes: what was seen of every matrix, made into rows, and rows into pieces of copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layouts.algebra import Piece
from layouts.codes import Code
from layouts.consensus import Missing, column_segments, forget_single, settle, stored_twice
from layouts.digits import Int64
from layouts.errors import DecodeRefused
from layouts.integer_markers import MarkedMatrix
from layouts.narrow_sightings import find_narrow
from layouts.row_places import RowPlaces, copies_of
from layouts.sightings import Blob, Places, Witness, find_elements

NIBBLE = 4


@dataclass(frozen=True)
class Segment:
    """Columns from `left` on of a plane: the lower and the higher places of its rows, and how often each is stored."""

    left: int
    first: RowPlaces
    second: RowPlaces | None

    @property
    def copies(self) -> Int64:
        return np.where(self.second.base >= 0, 2, 1) if self.second else np.ones(len(self.first.base), np.int64)


PlanePlaces = list[list[Segment]]


def place_planes(marked: Sequence[Blob], code: Code, matrices: tuple[MarkedMatrix, ...]) -> dict[str, PlanePlaces]:
    """Matrix -> places of its rows, plane by plane: 8 bytes an element.

    Raises DecodeRefused for elements that are nowhere, with how many of each matrix and the first.
    """
    placed: dict[str, PlanePlaces] = {matrix.name: [] for matrix in matrices}
    missing = {matrix.name: Missing() for matrix in matrices}
    wide = sum(matrix.elements for matrix in matrices if not matrix.narrow)
    for plane in range(len(code.planes)):
        seen = find_elements(marked, code, plane, wide)
        for matrix in matrices:
            span = slice(matrix.first, matrix.first + matrix.elements)
            own = (
                find_narrow(marked, matrix, matrix.narrow, plane)
                if matrix.narrow
                else tuple(table[span] for table in seen)
            )
            lowest, highest = (table.reshape(matrix.shape) for table in own)
            placed[matrix.name].append(
                [
                    _segment(
                        Witness(marked, matrix, plane, left),
                        lowest[:, left:right],
                        highest[:, left:right],
                        missing[matrix.name],
                    )
                    for left, right in column_segments(lowest, matrix.tail)
                ]
            )
        _check_missing(matrices, missing)
    return placed


def _check_missing(matrices: tuple[MarkedMatrix, ...], missing: Mapping[str, Missing]) -> None:
    lost = [(matrix, missing[matrix.name]) for matrix in matrices if missing[matrix.name].count]
    if lost:
        faults = (f"{m.name}: {found.count} of {m.elements} elements, first {found.first}" for m, found in lost)
        raise DecodeRefused("elements that are stored nowhere: " + "; ".join(faults))


def _segment(witness: Witness, lowest: Places, highest: Places, missing: Missing) -> Segment:
    twice = np.flatnonzero(stored_twice(lowest, highest))
    forget_single(lowest, highest, twice)
    first = settle(witness, lowest, highest, np.arange(len(lowest)), missing)
    second = settle(witness, highest, lowest, twice, missing) if twice.size else None
    return Segment(witness.left, first, second)


def plane_copies(segments: list[Segment]) -> list[tuple[Piece, ...]]:
    """Pieces of each copy of a plane."""
    parts = [(segment.left, copies_of(segment.first, segment.second, NIBBLE, NIBBLE)) for segment in segments]
    return [
        tuple(Piece(piece.row, piece.col + left, piece.layout) for left, copies in parts for piece in copies[index])
        for index in range(len(parts[0][1]))
    ]
