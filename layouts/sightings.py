"""Where the words of marked elements stand in the builds of an engine: every nibble of the blobs is looked at once a plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.codes import NOTHING, U32, Code
from layouts.errors import DecodeRefused
from layouts.integer_markers import I64, MarkedMatrix

Blob = npt.NDArray[np.uint8]
Places = npt.NDArray[Any]
"""Nibble addresses (2 * byte + half), int32 where they fit, otherwise int64; -1 for nowhere."""

CHUNK = 1 << 16
MAX_SEARCHES = 64
LARGEST_INT32 = (1 << 31) - 1


def check_sizes(builds: Sequence[Blob]) -> None:
    """Raises DecodeRefused for builds of differing size."""
    for index, build in enumerate(builds):
        if build.size != builds[0].size:
            reason = "marker builds differ in size"
            raise DecodeRefused(reason, where=f"build {index}", expected=builds[0].size, found=build.size)


def find_elements(builds: Sequence[Blob], code: Code, plane: int, elements: int) -> tuple[Places, Places]:
    """As `find_words`, for the words of a code."""
    return find_words(builds, lambda words: code.locate(words, plane), elements)


def find_words(builds: Sequence[Blob], locate: Callable[[U32], U32], elements: int) -> tuple[Places, Places]:
    """The lowest and the highest place at which each element's word stands; 8 bytes an element (16 above 1 GiB).

    A few places are other bytes that happen to spell the word, and an element that the compiler corrected is not found
    where it is.
    """
    dtype: type[np.int32 | np.int64] = np.int32 if 2 * builds[0].size <= LARGEST_INT32 else np.int64
    none = np.iinfo(dtype).max
    lowest: Places = np.full(elements, none, dtype)
    highest: Places = np.full(elements, -1, dtype)
    for place, words in nibble_words(builds):
        number = locate(words)
        at = np.flatnonzero((number < elements) & (number != NOTHING) & not_constant(words, len(builds)))
        number, places = number[at], (2 * at + place).astype(dtype)
        highest[number] = np.maximum(highest[number], places)
        number, places = number[::-1], places[::-1]
        lowest[number] = np.minimum(lowest[number], places)
    lowest[highest < 0] = -1
    return lowest, highest


def not_constant(words: U32, builds: int) -> npt.NDArray[np.bool_]:
    """Words that are not the same nibble in all builds."""
    changing: npt.NDArray[np.bool_] = words != (words & np.uint32(15)) * np.uint32(((1 << 4 * builds) - 1) // 15)
    return changing


def nibble_words(builds: Sequence[Blob]) -> Iterator[tuple[int, U32]]:
    """Place of the first nibble, and the words of the nibbles at every second place from there."""
    for start in range(0, builds[0].size, CHUNK):
        low = np.zeros(min(CHUNK, builds[0].size - start), np.uint32)
        high = np.zeros_like(low)
        for build, blob in enumerate(builds):
            data = np.asarray(blob[start : start + CHUNK])
            low |= (data & np.uint8(15)).astype(np.uint32) << np.uint32(4 * build)
            high |= (data >> np.uint8(4)).astype(np.uint32) << np.uint32(4 * build)
        yield 2 * start, low
        yield 2 * start + 1, high


class Witness:
    """Tells of any place whether it can be that of an element, by what all builds hold there."""

    def __init__(self, builds: Sequence[Blob], matrix: MarkedMatrix, plane: int, left: int = 0) -> None:
        """Columns are counted from `left`."""
        self.builds, self.matrix, self.plane, self.left = builds, matrix, plane, left
        self._searches = 0

    def fits(self, rows: I64, cols: I64, places: I64) -> npt.NDArray[np.bool_]:
        """Where every build holds the element, or what a correction by one step makes of it in all builds but one."""
        near, exact = self._compared(rows, cols, places)
        return near & exact

    def bears(self, rows: I64, cols: I64, places: I64) -> npt.NDArray[np.bool_]:
        """The same, but corrected in all builds, too: for places that are told by the pattern of a row."""
        return self._compared(rows, cols, places)[0]

    def _compared(self, rows: I64, cols: I64, places: I64) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        inside = (places >= 0) & (places < 2 * self.builds[0].size)
        safe = np.where(inside, places, 0)
        wraps = self.plane + 1 < len(self.matrix.code.planes)
        near, exact = inside.copy(), np.zeros(len(places), bool)
        for build, blob in enumerate(self.builds):
            found, expected = self._nibbles(blob, safe), self._expected(build, rows, cols)
            apart = np.abs(found.astype(np.int8) - expected.astype(np.int8))
            near &= (apart <= 1) | (wraps & (apart == 15))  # from 15 to 0, or back, is carried into the other plane
            exact |= apart == 0
        return near, exact

    def _expected(self, build: int, rows: I64, cols: I64) -> npt.NDArray[np.uint8]:
        return self.matrix.code.fields(self.matrix.at(build, rows, cols + self.left), self.plane)

    def search(self, row: int, col: int) -> I64:
        """Every place whose nibble is this element's in all builds; none after 64 searches, which only junk needs."""
        self._searches += 1
        if self._searches > MAX_SEARCHES:
            return np.zeros(0, np.int64)
        at = (np.array([row]), np.array([col]))
        found = []
        word = sum(int(self._expected(build, *at)[0]) << 4 * build for build in range(len(self.builds)))
        for place, words in nibble_words(self.builds):
            found.append(2 * np.flatnonzero(words == np.uint32(word)) + place)
        return np.sort(np.concatenate(found))

    @staticmethod
    def _nibbles(blob: Blob, places: I64) -> npt.NDArray[np.uint8]:
        nibbles: npt.NDArray[np.uint8] = (blob[places >> 1] >> (4 * (places & 1)).astype(np.uint8)) & np.uint8(15)
        return nibbles
