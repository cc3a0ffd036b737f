"""Where scale entries stand in marker builds: the row (of s4 the row and group) stands in their exponents over the builds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from layouts.codes import U32, Code
from layouts.digits import Int64
from layouts.entry_codecs import EntryCodec, entry_codec
from layouts.errors import DecodeRefused
from layouts.integer_markers import DIGIT_BITS, EXPONENTS, MarkedMatrix
from layouts.scales import DIVISORS
from layouts.sightings import Blob

ENTRIES_OF = {"s8": ("reciprocal",), "s4": ("bf16", "fp16")}
GROUPS_OF = {"s8": (256, 128), "s4": (128,)}
CHUNK = 1 << 18


@dataclass(frozen=True)
class FoundEntries:
    """All places of entries under one reading of them.

    number, place : scale word and byte of each, ascending by number, then by byte
    """

    entry: str
    divisor: float
    number: U32
    place: Int64

    @property
    def width(self) -> int:
        return entry_codec(self.entry).width


def find_entries(builds: Sequence[Blob], code: Code, words: npt.NDArray[np.uint64]) -> FoundEntries:
    """The reading of entries under which most of them are found. `words` are the scale words of the engine."""
    readings = product(ENTRIES_OF[code.codec], DIVISORS[code.codec])
    found = [_find(builds, entry, divisor, code.top, words) for entry, divisor in readings]
    return max(found, key=lambda reading: len(reading.place))


def _find(builds: Sequence[Blob], entry: str, divisor: float, top: int, words: npt.NDArray[np.uint64]) -> FoundEntries:
    kind = entry_codec(entry)
    patterns = _patterns(kind, divisor, top)
    ascending, numbers, places = np.argsort(words).astype(np.uint32), [], []
    for start in range(0, builds[0].size, CHUNK):
        at, digits = _digits(builds[0], start, kind.width // 8, patterns)
        found = digits.astype(np.uint64)
        for build, blob in enumerate(builds[1:], 1):
            again = _lookup(_at(blob, at, kind.width // 8), patterns)
            kept = again >= 0
            at, found, again = at[kept], found[kept], again[kept]
            found |= again.astype(np.uint64) << np.uint64(DIGIT_BITS * build)
        number = ascending[np.minimum(np.searchsorted(words, found, sorter=ascending), len(words) - 1)]
        numbers.append(number[words[number] == found])
        places.append(at[words[number] == found])
    number, place = np.concatenate(numbers), np.concatenate(places)
    order = np.lexsort((place, number))
    return FoundEntries(entry, divisor, number[order], place[order])


def _patterns(kind: EntryCodec, divisor: float, top: int) -> U32:
    """The stored entry of each scale digit; the last one is that of zeros."""
    largest = np.ldexp(np.float64(top), EXPONENTS[:-1])
    return kind.encode(kind.held(np.append(largest / divisor, 1.0))).astype(np.uint32)


def _digits(blob: Blob, start: int, size: int, patterns: U32) -> tuple[Int64, npt.NDArray[np.int8]]:
    """Bytes of a chunk at which one of the patterns stands, and which."""
    data = np.asarray(blob[start : start + CHUNK + size - 1])
    count = len(data) - size + 1
    if count <= 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int8)
    possible = np.zeros(256, bool)
    possible[patterns >> np.uint32(8 * size - 8)] = True
    at = np.flatnonzero(possible[data[size - 1 :]])
    digits = _lookup(_at(data, at, size), patterns)
    return at[digits >= 0] + start, digits[digits >= 0]


def _at(blob: Blob, at: Int64, size: int) -> U32:
    """The little-endian words of so many bytes at some bytes."""
    words = np.zeros(len(at), np.uint32)
    for byte in range(size):
        words |= blob[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return words


def _lookup(words: U32, patterns: U32) -> npt.NDArray[np.int8]:
    """Which pattern each word is, -1 for none."""
    order = np.argsort(patterns)
    index = np.minimum(np.searchsorted(patterns[order], words), len(patterns) - 1)
    return np.where(patterns[order][index] == words, order[index], -1).astype(np.int8)


def entry_tables(found: FoundEntries, matrix: MarkedMatrix, copies: Int64) -> tuple[int, list[Int64]]:
    """Columns of a group, and bytes of the entries of each copy, `[rows, groups]` with -1 in rows that the second lacks.

    The entries of a row's copies do not mix: the lower half of its places is one copy's. Those of one copy ascend.

    Parameters
    ----------
    copies : how often each row is stored, 1 or 2

    Raises DecodeRefused when a row has another number of entries.
    """
    words = matrix.scale_words
    numbers = matrix.first_scale + np.arange(matrix.shape[0] * words + 1)
    edges = np.searchsorted(found.number, numbers)
    counts, place = np.diff(edges), found.place[edges[0] : edges[-1]]
    for group in GROUPS_OF[matrix.code.codec]:
        each = -(-matrix.shape[1] // group) // words  # entries of a scale word in one copy
        expected = np.repeat(copies * each, words)
        if np.array_equal(counts, expected):
            return group, _tables(place, copies, words, each)
    wrong = int(np.argmax(counts != expected))
    raise DecodeRefused(
        f"{np.count_nonzero(counts != expected)} scale words have another number of entries",
        where=f"{matrix.name}[{wrong // words}]",
        expected=int(expected[wrong]),
        found=int(counts[wrong]),
    )


def _tables(place: Int64, copies: Int64, words: int, each: int) -> list[Int64]:
    """Places, those of a row together, as tables of the first and the second copy."""
    tables = [np.full((len(copies), words * each), -1, np.int64) for _ in range(int(copies.max()))]
    held = np.repeat(copies, copies * each * words)
    for times in (1, 2):
        rows = np.flatnonzero(copies == times)
        if rows.size:
            own = place[held == times].reshape(len(rows), words, times, each)
            for copy in range(times):
                tables[copy][rows] = own[:, :, copy].reshape(len(rows), -1)
    return tables
