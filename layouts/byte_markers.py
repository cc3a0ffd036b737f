"""Marker builds for engines of plain bytes: over eight builds the bytes that a known rule makes of an element's values say which
element it is, and what else follows from a row (zero point, scale, bias) says which row.

Values are drawn from a hash of the number of the element, so that any rows can be made again. Rows, and long
spans of columns, differ in their range and in where 0 lies in it, hence in scale and zero point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32
from layouts.digits import Int64
from layouts.errors import DecodeRefused
from layouts.markers import NOT_FOUND, Blob, MarkedTensor, Sightings

BUILDS = 8
SPAN = 1024
"""Columns of a row that are of one size: a compiler may store some columns with scales of their own."""
CHUNK = 1 << 18
MOST_SEEDS = 8

U64 = npt.NDArray[np.uint64]
Fields = Sequence[npt.NDArray[np.uint32]]
"""Of each build, what every element or row stores."""

_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True)
class ByteMarkers:
    """What the marker builds hold: other values for another seed."""

    tensors: tuple[MarkedTensor, ...]
    seed: int = 0

    def rows(self, name: str) -> int:
        """Rows of a matrix."""
        return next(tensor.grid[0] for tensor in self.tensors if tensor.name == name)

    def values(self, name: str, build: int, rows: slice) -> Float32:
        """Rows of a matrix in a build, float32 `[rows, cols]`."""
        tensor = next(tensor for tensor in self.tensors if tensor.name == name)
        total, cols = tensor.grid
        row = np.arange(rows.start, min(rows.stop, total))[:, None]
        unit = self._uniform(tensor.first + row * cols + np.arange(cols), build)
        span = tensor.first + row * cols + np.arange(cols) // SPAN
        size, origin = (self._uniform(span, BUILDS * turn + build) for turn in (1, 2))
        values: Float32 = ((unit - 0.3 - 0.4 * origin) * np.exp2(-2 * size)).astype(np.float32)
        return values

    def bias(self, name: str, build: int) -> Float32:
        """The bias of a matrix' rows in a build, float32 `[rows]`: so large that no output is negative, since a compiler may drop
        what a rectifier would never let through.
        """
        tensor = next(tensor for tensor in self.tensors if tensor.name == name)
        rows, cols = tensor.grid
        unit = self._uniform(tensor.first + np.arange(rows), 3 * BUILDS + build)
        values: Float32 = (cols * (0.2 + 0.3 * unit)).astype(np.float32)
        return values

    def _uniform(self, numbers: Int64, turn: int) -> npt.NDArray[np.float64]:
        """Numbers from 0 to 1 that look random."""
        turns = np.uint64(turn + 1 + 4 * BUILDS * self.seed)
        mixed = (numbers.astype(np.uint64) * np.uint64(4 * BUILDS * MOST_SEEDS) + turns) * _STEP
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def find_fields(builds: Sequence[Blob], expected: Fields, size: int) -> tuple[Int64, Int64]:
    """Every place at which all builds hold what one of the elements stores.

    Parameters
    ----------
    expected : of each build the stored integers of all elements
    size : bytes of one

    Returns
    -------
    index of the element and byte of the blob, ascending by place

    Raises DecodeRefused when two elements store the same in all builds.
    """
    words = _words(expected)
    order = np.argsort(words)
    ascending = words[order]
    if (ascending[1:] == ascending[:-1]).any():
        raise DecodeRefused("elements that store the same in all marker builds: too few in a row")
    numbers, places = [], []
    for start in range(0, builds[0].size, CHUNK):
        fields = [_fields(build[start : start + CHUNK + size - 1], size) for build in builds]
        at = np.flatnonzero(np.any([field != fields[0] for field in fields[1:]], axis=0))
        found = _words([field[at] for field in fields])
        index = np.minimum(np.searchsorted(ascending, found), len(ascending) - 1)
        hit = ascending[index] == found
        numbers.append(order[index[hit]])
        places.append(at[hit] + start)
    return np.concatenate(numbers), np.concatenate(places)


def sightings(numbers: Int64, places: Int64, elements: int) -> Sightings:
    """Lowest and highest bit of each element, from places in ascending order."""
    lowest, highest = (np.full(elements, NOT_FOUND, np.int64) for _ in range(2))
    highest[numbers] = 8 * places
    lowest[numbers[::-1]] = 8 * places[::-1]
    same = np.array_equal(lowest, highest)
    return Sightings(lowest, lowest if same else highest, len(places))


def _fields(data: Blob, size: int) -> npt.NDArray[np.uint32]:
    """The little-endian integer of so many bytes at every byte."""
    data = np.asarray(data)
    fields = np.zeros(max(0, len(data) - size + 1), np.uint32)
    for byte in range(size):
        fields |= data[byte : byte + len(fields)].astype(np.uint32) << np.uint32(8 * byte)
    return fields


def _words(fields: Fields) -> U64:
    """One word for the fields of all builds."""
    words = np.zeros(len(fields[0]), np.uint64)
    for field in fields:
        words = (words ^ field) * _STEP
        words ^= words >> np.uint64(29)
    return words
