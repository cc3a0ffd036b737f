"""Words of a blob that are one of a few values: most of a blob is none of them."""

from __future__ import annotations

from copy import copy

import numpy as np
import numpy.typing as npt

from layouts.anchors.claims import Claims
from layouts.anchors.scan import TABLE_BITS, Bytes, Flags, word_at
from layouts.digits import Int64

CHUNK = 1 << 20
_MIX = np.uint64(0xD1342543DE82EF95)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Values = npt.NDArray[np.int64]


class SparseWords:
    """Where words of `width` bits hold one of some values, to `near` of it.

    values : distinct values, ascending; those nearer to each other are taken for one
    """

    def __init__(self, blob: Bytes, values: Values, width: int, near: int) -> None:
        self.values, self._size = values, width // 8
        self._class = np.cumsum(np.diff(values, prepend=values[:1]) > 2 * near).astype(np.int32)
        around = values[:, None] + np.arange(-near, near + 1)
        wanted, first = np.unique(around.ravel(), return_index=True)
        owner = self._class[first // (2 * near + 1)]
        places, codes = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        table = np.zeros(1 << TABLE_BITS, np.bool_)
        table[self._slot(wanted)] = True
        for start in range(0, blob.size - self._size + 1, CHUNK):
            data = np.ascontiguousarray(blob[start : start + CHUNK + self._size - 1])
            words = word_at(data, 0, data.size - self._size + 1, self._size).astype(np.int64)
            at = np.flatnonzero(table[self._slot(words)])
            index = np.minimum(np.searchsorted(wanted, words[at]), len(wanted) - 1)
            same = wanted[index] == words[at]
            places.append(start + at[same])
            codes.append(owner[index[same]])
        self.places, self._codes = np.concatenate(places), np.concatenate(codes)

    def _keep(self, kept: Flags) -> None:
        self.places, self._codes = self.places[kept], self._codes[kept]

    def free(self, claims: Claims) -> SparseWords:
        """The words that belong to nothing else."""
        other = copy(self)
        other._keep(~(claims.taken(8 * self.places) | claims.taken(8 * self.places + 4)))
        return other

    def within(self, spans: list[tuple[int, int]]) -> SparseWords:
        """The words that stand in one of some ranges of bytes."""
        other, kept = copy(self), np.zeros(len(self.places), np.bool_)
        for low, high in spans:
            kept |= (self.places >= low) & (self.places < high)
        other._keep(kept)
        return other

    @staticmethod
    def _slot(words: Values) -> npt.NDArray[np.intp]:
        return ((words.astype(np.uint64) * _GOLDEN) >> np.uint64(64 - TABLE_BITS)).astype(np.intp)

    def find(self, lines: Values, count: int, step: int) -> tuple[Int64, Int64, Int64]:
        """Windows of `count` words, `step` bytes apart.

        Parameters
        ----------
        lines : `[lines, length]` values, all of them known to this object

        Returns
        -------
        line, first element and byte of every window found; windows of one value only say nothing and are left out
        """
        own = self._class[np.searchsorted(self.values, lines)]
        windows = np.lib.stride_tricks.sliding_window_view(own, count, axis=1)
        telling = (windows != windows[:, :, :1]).any(axis=2) | (count == 1)
        line, start = np.nonzero(telling)
        keys = self._keys(windows[line, start])
        at, codes = self._sequences(count, step)
        found = self._keys(codes)
        order = np.argsort(keys, kind="stable")
        low, high = (np.searchsorted(keys[order], found, side=side) for side in ("left", "right"))
        times = high - low
        which = np.repeat(low, times) + np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        window = order[which]
        return line[window], start[window], np.repeat(at, times)

    def holds(self, byte: int, value: int) -> bool:
        """Whether the word at a byte is one of these values, or near it."""
        place = int(np.searchsorted(self.places, byte))
        if place == len(self.places) or self.places[place] != byte:
            return False
        return bool(self._codes[place] == self._class[np.searchsorted(self.values, value)])

    def codes_of(self, values: Values) -> Int64:
        """A number for each value that is the same for those that are taken for one."""
        found: Int64 = self._class[np.searchsorted(self.values, values)].astype(np.int64)
        return found

    def places_of(self, code: int) -> Int64:
        """Bytes of the words of a code."""
        places: Int64 = self.places[self._codes == code]
        return places

    def codes_at(self, places: Int64) -> Int64:
        """Codes of the words at some bytes, -1 where there is none of these words."""
        if not len(self.places):
            return np.full(places.shape, -1, np.int64)
        index = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        codes: Int64 = np.where(self.places[index] == places, self._codes[index], -1)
        return codes

    def _sequences(self, count: int, step: int) -> tuple[Int64, npt.NDArray[np.int32]]:
        """Bytes at which `count` known words begin, and their codes."""
        at = self.places
        codes = np.empty((len(at), count), np.int32)
        whole: Flags = np.ones(len(at), np.bool_)
        for index in range(count):
            place = np.searchsorted(self.places, at + index * step)
            place = np.minimum(place, max(0, len(self.places) - 1))
            whole &= self.places[place] == at + index * step
            codes[:, index] = self._codes[place]
        return at[whole], codes[whole]

    @staticmethod
    def _keys(codes: npt.NDArray[np.signedinteger]) -> npt.NDArray[np.uint64]:
        keys = np.zeros(len(codes), np.uint64)
        for index in range(codes.shape[1]):
            keys = keys * _MIX + codes[:, index].astype(np.uint64) + np.uint64(1)
        return keys
