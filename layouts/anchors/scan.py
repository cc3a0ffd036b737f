"""Where windows of stored fields stand in a blob: every byte is looked at once, however many windows are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.digits import Int64

Bytes = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Fields = npt.NDArray[Any]

WINDOW_BITS = 64
APART = 4
CHUNK = 1 << 19
TABLE_BITS = 22
MOST_HITS = 24
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD1342543DE82EF95)


@dataclass(frozen=True)
class Window:
    """Fields of `width` bits that follow each other every `step` bits: 64 bits of them, or four where they stand apart.

    high_first : of two 4-bit fields the first is in the high half of the byte
    """

    width: int
    step: int
    high_first: bool = False

    @property
    def count(self) -> int:
        """Fields of a window."""
        return WINDOW_BITS // self.width if self.step == self.width else APART

    def keys(self, fields: Fields, starts: Int64) -> U64:
        """One word for the window at each start of each line of fields, uint64 `[lines, starts]`."""
        keys = np.zeros((len(fields), len(starts)), np.uint64)
        for index in range(self.count):
            part = fields[:, starts + index].astype(np.uint64)
            if self.step != self.width:
                keys = keys * _MIX + part
            else:
                place = index ^ 1 if self.high_first else index
                keys |= part << np.uint64(place * self.width)
        return keys

    def telling(self, fields: Fields, starts: Int64) -> Flags:
        """Windows that are not one field nearly all over, which much of any blob is; `[lines, starts]`."""
        others = np.zeros((len(fields), len(starts)), np.int8)
        first = fields[:, starts]
        for index in range(1, self.count):
            others += fields[:, starts + index] != first
        enough: Flags = others >= max(1, self.count // 3)
        return enough

    def words(self, blob: Bytes) -> Iterator[tuple[int, int, U64]]:
        """The word of every byte of a blob: first byte, bytes from one word to the next, words."""
        if self.step == self.width:
            for start in range(0, blob.size - 7, CHUNK):
                data = np.ascontiguousarray(blob[start : start + CHUNK + 7])
                for phase in range(8):
                    yield start + phase, 8, data[phase : phase + (data.size - phase) // 8 * 8].view("<u8")
            return
        size, apart = self.width // 8, self.step // 8
        reach = (self.count - 1) * apart + size
        for start in range(0, blob.size - reach + 1, CHUNK):
            data = np.ascontiguousarray(blob[start : start + CHUNK + reach - 1])
            length = data.size - reach + 1
            keys = np.zeros(length, np.uint64)
            for index in range(self.count):
                keys = keys * _MIX + word_at(data, index * apart, length, size)
            yield start, 1, keys

    def find(self, blob: Bytes, keys: U64) -> tuple[Int64, Int64]:
        """Places of windows.

        Parameters
        ----------
        keys : as `keys` gives them, `[n]`, equal ones allowed

        Returns
        -------
        index into `keys` and byte of every hit, ascending by index, then by byte; windows that stand in more than 24
        places say nothing and are left out
        """
        wanted, inverse = np.unique(keys, return_inverse=True)
        number, place = self._hits(blob, wanted)
        counts = np.bincount(number, minlength=len(wanted))
        kept = counts[number] <= MOST_HITS
        place = place[kept]
        few = np.where(counts <= MOST_HITS, counts, 0)
        edges = np.concatenate([[0], np.cumsum(few)])
        per_key = few[inverse]
        index = np.repeat(np.arange(len(keys)), per_key)
        offset = np.arange(len(index)) - np.repeat(np.cumsum(per_key) - per_key, per_key)
        return index, place[edges[inverse][index] + offset]

    def _hits(self, blob: Bytes, wanted: U64) -> tuple[Int64, Int64]:
        """Index into sorted distinct windows and byte of every place, sorted by both."""
        table = np.zeros(1 << TABLE_BITS, np.bool_)
        table[_slot(wanted)] = True
        numbers, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for start, apart, words in self.words(blob) if len(wanted) else ():
            at = np.flatnonzero(table[_slot(words)])
            found = np.minimum(np.searchsorted(wanted, words[at]), len(wanted) - 1)
            same = wanted[found] == words[at]
            numbers.append(found[same])
            places.append(start + apart * at[same])
        number, place = np.concatenate(numbers), np.concatenate(places)
        order = np.lexsort((place, number))
        return number[order], place[order]


def _slot(words: U64) -> npt.NDArray[np.intp]:
    return ((words * _GOLDEN) >> np.uint64(64 - TABLE_BITS)).astype(np.intp)


def word_at(data: Bytes, start: int, length: int, size: int) -> U64:
    """Little-endian words of so many bytes at every byte."""
    word = np.zeros(length, np.uint64)
    for byte in range(size):
        word |= data[start + byte : start + byte + length].astype(np.uint64) << np.uint64(8 * byte)
    return word


def read_fields(blob: Bytes, at: Int64, window: Window) -> Int64:
    """Fields at bit addresses, int64; -1 outside the blob."""
    inside = (at >= 0) & (at + window.width <= blob.size * 8)
    safe = np.where(inside, at, 0)
    if window.width == 4:
        half = (safe & 4) ^ (4 if window.high_first else 0)
        found = ((blob[safe >> 3] >> half.astype(np.uint8)) & np.uint8(15)).astype(np.int64)
    else:
        found = np.zeros(at.shape, np.int64)
        for byte in range(window.width // 8):
            found |= blob[np.minimum((safe >> 3) + byte, blob.size - 1)].astype(np.int64) << (8 * byte)
    return np.where(inside, found, -1)
