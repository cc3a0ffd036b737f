"""Where the elements of narrow matrices stand: words are looked up; rows of corrected elements are told by the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layouts.codes import NOTHING, U32
from layouts.digits import Int64
from layouts.integer_markers import MarkedMatrix
from layouts.narrow_codes import NarrowCode, joined
from layouts.sightings import MAX_SEARCHES, Blob, Places, Witness, find_words
from layouts.smooth import UNKNOWN, smooth


class WordTable:
    """The words of a plane of a narrow matrix; those that wide matrices have, too, tell nothing."""

    def __init__(self, matrix: MarkedMatrix, narrow: NarrowCode, plane: int) -> None:
        code, rows = matrix.code, matrix.shape[0]
        self.words = joined([code.fields(matrix.integers(b, 0, rows), plane) for b in range(code.builds)]).ravel()
        order = np.argsort(self.words).astype(np.uint32)
        self._order = order[~narrow.used(self.words[order])]
        self._sorted = self.words[self._order]

    def locate(self, words: U32) -> U32:
        """Index of the elements with these words, `NOTHING` where none has."""
        if not len(self._sorted):
            return np.full(len(words), NOTHING)
        index = np.minimum(np.searchsorted(self._sorted, words), len(self._sorted) - 1)
        return np.where(self._sorted[index] == words, self._order[index], NOTHING)


def find_narrow(builds: Sequence[Blob], matrix: MarkedMatrix, narrow: NarrowCode, plane: int) -> tuple[Places, Places]:
    """The lowest and the highest place of each element, `[rows, cols]`, -1 for nowhere.

    Rows that show anything at all are told by those stored alike. Those that show nothing, since a compiler has corrected every
    element, are expected in line with the others.
    """
    lowest, highest = find_words(builds, WordTable(matrix, narrow, plane).locate, matrix.elements)
    lowest, highest = lowest.reshape(matrix.shape), highest.reshape(matrix.shape)
    lost = np.flatnonzero((lowest < 0).all(axis=1))
    if 0 < lost.size <= MAX_SEARCHES:
        witness = Witness(builds, matrix, plane)
        for col in range(matrix.shape[1]):
            found = _in_line(witness, lowest[:, col].astype(np.int64), highest[:, col].astype(np.int64), lost, col)
            highest[lost, col] = found.max(axis=0)
            lowest[lost, col] = np.where(found < 0, found.max(axis=0), found).min(axis=0)
    return lowest, highest


def _in_line(witness: Witness, lowest: Int64, highest: Int64, lost: Int64, col: int) -> Int64:
    """Where lost elements of a column stand, `[3, lost]`: in line with rows stored once, and with either copy of the others.

    What builds hold there has to bear it; -1 otherwise.
    """

    def holds(row: int, place: int) -> bool:
        return bool(witness.bears(np.array([row]), np.array([col]), np.array([place]))[0])

    seen, twice = np.ones(len(lowest), bool), lowest != highest
    seen[lost] = False
    found = []
    for line, rows in ((lowest, ~twice), (lowest, twice), (highest, twice)):
        mended = smooth(np.where(seen & rows & (line >= 0), line, UNKNOWN), seen, holds)[lost]
        found.append(np.where(mended == UNKNOWN, -1, mended))
    return np.stack(found)
