"""A tensor, every place that it is stored in, and the way from an array of any shape to the matrix that is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.algebra import Layout
from layouts.bias import ENTRY_WIDTH, Bias
from layouts.codecs import codec
from layouts.copies import Copy, Plane
from layouts.entry_codecs import entry_codec
from layouts.errors import LayoutError
from layouts.integers import INTEGERS
from layouts.names import check_count, check_name
from layouts.scales import Scales

MAX_AXES = 8

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor and every place it is stored in; the first copy is complete.

    Parameters
    ----------
    shape : (rows, cols), (1, n) for a vector
    scales : of integer codecs, and of no other
    folded : the norm of this engine whose gain is multiplied into the columns before they are quantized, "" for none
    bias : how the copies store a bias beside the integers; None where they do not
    dims : shape of the source array where that is neither (rows, cols) nor (n,)
    order : permutation of its axes: the stored matrix is `array.transpose(order).reshape(shape)`
    padding : last columns of the stored matrix that the source does not have; their value is 0
    source : name of the source's tensor where the stored matrix is only some columns of that, with scales of their own
    columns : which, (first, stop) of the matrix that `dims` and `order` give; then padding

    Raises
    ------
    LayoutError : a plane outside the shape, planes that do not make up the codec's integer, an incomplete first copy,
        scale or bias entries that the tensor does not have or that do not fit it, axes that do not give the shape
    """

    name: str
    shape: tuple[int, int]
    codec: str
    copies: tuple[Copy, ...]
    scales: Scales | None = None
    folded: str = ""
    bias: Bias | None = None
    dims: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    padding: int = 0
    source: str = ""
    columns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.folded:
            check_name(self.folded)
        if (self.scales is not None) != (self.codec in INTEGERS):
            raise LayoutError("integer codecs have scales, others have none", where=self.name, found=self.codec)
        width = INTEGERS[self.codec].width if self.codec in INTEGERS else codec(self.codec).width
        self._check_axes()
        check_count("copies", self.name, len(self.copies), 16)
        if len({copy.name for copy in self.copies}) != len(self.copies):
            raise LayoutError("two copies of one name", where=self.name)
        for copy in self.copies:
            self._check_copy(copy, width)
        if self.copies[0].rows != ((0, self.shape[0]),):
            found = self.copies[0].rows
            raise LayoutError("first copy lacks rows", where=self.name, expected=f"0 to {self.shape[0]}", found=found)
        self._check_bias()

    @property
    def source_shape(self) -> tuple[int, ...]:
        """Shape of the source array; of a tensor of one row (n,) unless `dims` says otherwise."""
        rows, cols = self.shape[0], self.shape[1] - self.padding
        return self.dims or ((rows, cols) if rows > 1 else (cols,))

    @property
    def source_name(self) -> str:
        """The name of the source's tensor, without the prefix of a layer."""
        return self.source or self.name

    def copy(self, name: str) -> Copy:
        """Raises LayoutError for an unknown name."""
        for copy in self.copies:
            if copy.name == name:
                return copy
        known = " | ".join(copy.name for copy in self.copies)
        raise LayoutError("no such copy", where=self.name, expected=known, found=name)

    def layouts(self) -> Iterator[Layout]:
        """Every layout of every plane, of the scale entries and of the bias entries of every copy."""
        for copy in self.copies:
            for plane in copy.everything():
                yield from (piece.layout for piece in plane.pieces)

    def _check_axes(self) -> None:
        cols = self.shape[1] - self.padding
        if not 0 <= self.padding < self.shape[1]:
            expected = f"0 to {self.shape[1] - 1} columns"
            raise LayoutError("padding out of range", where=self.name, expected=expected, found=self.padding)
        if bool(self.source) != bool(self.columns) or (self.columns and not self.dims):
            raise LayoutError("columns of a source that is not said", where=self.name)
        if not self.dims and not self.order:
            return
        if len(self.dims) > MAX_AXES or sorted(self.order) != list(range(len(self.dims))):
            raise LayoutError(
                "not a permutation of the axes", where=self.name, expected=len(self.dims), found=self.order
            )
        total = self._check_columns(cols)
        if min(self.dims) < 1 or prod(self.dims) != self.shape[0] * total or self.dims[self.order[0]] != self.shape[0]:
            found = f"{list(self.dims)} in order {list(self.order)}"
            raise LayoutError("axes do not give the shape", where=self.name, expected=list(self.shape), found=found)

    def _check_columns(self, cols: int) -> int:
        """Columns of the source's matrix."""
        if not self.columns:
            return cols
        check_name(self.source)
        total = prod(self.dims) // self.shape[0]
        if len(self.columns) != 2 or not 0 <= self.columns[0] < self.columns[1] <= total:
            raise LayoutError("columns out of range", where=self.name, expected=f"0 to {total}", found=self.columns)
        if self.columns[1] - self.columns[0] != cols:
            raise LayoutError("columns do not give the shape", where=self.name, expected=cols, found=self.columns)
        return total

    def _check_copy(self, copy: Copy, width: int) -> None:
        at = f"{self.name}: {copy.name}"
        if copy.cols != self.shape[1] or copy.rows[-1][1] > self.shape[0]:
            found = [copy.rows[-1][1], copy.cols]
            raise LayoutError("plane and tensor differ in shape", where=at, expected=list(self.shape), found=found)
        bit = 0
        for plane in sorted(copy.planes, key=lambda p: p.low_bit):
            if plane.low_bit != bit:
                found_bit = plane.low_bit
                raise LayoutError("planes do not follow each other", where=at, expected=f"bit {bit}", found=found_bit)
            bit += plane.bits
        if bit != width:
            raise LayoutError(f"planes do not make up {self.codec}", where=at, expected=f"{width} bits", found=bit)
        self._check_entries(copy.entries, at)
        if (copy.bias is None) != (self.bias is None):
            raise LayoutError("bias entries without a bias, or a bias without entries", where=at)
        if copy.bias is not None and (copy.bias.width, copy.bias.cols) != (ENTRY_WIDTH, 1):
            found = [copy.bias.width, copy.bias.cols]
            raise LayoutError("bias entries of another shape", where=at, expected=[ENTRY_WIDTH, 1], found=found)

    def _check_entries(self, entries: Plane | None, at: str) -> None:
        if (entries is None) != (self.scales is None):
            raise LayoutError("scale entries without scales, or scales without entries", where=at)
        if entries is None or self.scales is None:
            return
        expected = (entry_codec(self.scales.entry).width, self.scales.groups(self.shape[1]))
        if (entries.width, entries.cols) != expected:
            found = [entries.width, entries.cols]
            raise LayoutError("scale entries of another shape", where=at, expected=list(expected), found=found)

    def _check_bias(self) -> None:
        if self.bias is None:
            return
        if self.scales is None or not (self.scales.shared or self.scales.groups(self.shape[1]) == 1):
            raise LayoutError("bias entries need one scale for the row", where=self.name)
        for copy in self.copies[1:] if self.bias.zero_point else ():
            if any(_clipped(self.copies[0], rows) != _clipped(copy, rows) for rows in copy.rows):
                reason = "copies lack different elements: their bias entries would differ"
                raise LayoutError(reason, where=f"{self.name}: {copy.name}")


def _clipped(copy: Copy, rows: tuple[int, int]) -> list[tuple[slice, slice]]:
    return list(copy.absent_windows(*rows))


def to_matrix(stored: StoredTensor, array: Array) -> Array:
    """The stored matrix `[rows, cols]` of a source array.

    Raises LayoutError for an array of another shape than `stored.source_shape`; of one row, [1, n] will do.
    """
    rows, cols = stored.shape[0], stored.shape[1] - stored.padding
    if array.shape != stored.source_shape and (stored.dims or array.shape != (rows, cols)):
        expected, found = list(stored.source_shape), list(array.shape)
        raise LayoutError("source of another shape", where=stored.name, expected=expected, found=found)
    matrix = (array.transpose(stored.order) if stored.order else array).reshape(rows, -1)
    if stored.columns:
        matrix = matrix[:, slice(*stored.columns)]
    return np.pad(matrix, ((0, 0), (0, stored.padding))) if stored.padding else matrix


def from_matrix(stored: StoredTensor, matrix: Array) -> Array:
    """The source array, `stored.source_shape`, of a stored matrix.

    Raises LayoutError for one of another shape, and for a tensor that is only some columns of a source.
    """
    if stored.columns:
        raise LayoutError("only some columns of a source", where=stored.name, found=list(stored.columns))
    if matrix.shape != stored.shape:
        expected, found = list(stored.shape), list(matrix.shape)
        raise LayoutError("matrix of another shape", where=stored.name, expected=expected, found=found)
    matrix = matrix[:, : stored.shape[1] - stored.padding]
    if not stored.order:
        return matrix.reshape(stored.source_shape)
    axes = matrix.reshape([stored.dims[axis] for axis in stored.order])
    return axes.transpose(np.argsort(stored.order))
