"""Where a blob and a dense matrix meet: parts of both that hold the same elements, moved without index arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from layouts.digits import Box
from layouts.nibbles import BOTH, LOW, WIDTH, Picks
from layouts.stored import Plane
from layouts.strided import Array, Bytes, element_views, nibble_views


class Part(Protocol):
    """Some elements of a plane."""

    def load(self) -> None:
        """Blob to matrix."""

    def store(self) -> None:
        """Matrix to blob; nothing else of the blob changes, not the other half of a byte."""


@dataclass(frozen=True)
class Elements:
    """Elements of whole bytes: views of one shape."""

    stored: Array
    dense: Array

    def load(self) -> None:
        np.copyto(self.dense, self.stored)

    def store(self) -> None:
        _transpose(self.stored, self.dense)


@dataclass(frozen=True)
class Halves:
    """4-bit elements that are alone in their bytes, in the high halves or in the low ones."""

    stored: Bytes
    dense: Bytes
    high: bool

    def load(self) -> None:
        np.copyto(self.dense, self.stored >> np.uint8(4) if self.high else self.stored & np.uint8(LOW))

    def store(self) -> None:
        keep, shift = (LOW, 4) if self.high else (0xF0, 0)
        np.bitwise_and(self.stored, np.uint8(keep), out=self.stored)
        np.bitwise_or(self.stored, self.dense << np.uint8(shift), out=self.stored)


@dataclass(frozen=True)
class Pairs:
    """4-bit elements two to a byte."""

    stored: Bytes
    low: Bytes
    high: Bytes

    def load(self) -> None:
        pairs = self.stored.copy()
        np.bitwise_and(pairs, np.uint8(LOW), out=self.low)
        np.right_shift(pairs, np.uint8(4), out=self.high)

    def store(self) -> None:
        pairs = self.high << np.uint8(4)
        pairs |= self.low
        np.copyto(self.stored, pairs)


def plane_parts(blob: Bytes, plane: Plane, dense: Array, start: int) -> Iterator[Part]:
    """The parts that rows from `start` of a plane consist of.

    Parameters
    ----------
    dense : `[rows, cols]`, unsigned integers of the plane's width, 4-bit ones in bytes

    Raises
    ------
    LayoutError : an element outside the blob or not at a whole byte, or half a byte where it is 4 bits wide
    """
    stop = start + len(dense)
    for piece in plane.pieces:
        first, end = max(start, piece.row), min(stop, piece.row_stop)
        if first >= end:
            continue
        window = dense[first - start : end - start, piece.col : piece.col_stop]
        if plane.width != WIDTH:
            for row, col, view in element_views(blob, piece.layout, first - piece.row, end - piece.row):
                yield Elements(view, _block(window, row, col, first - piece.row))
            continue
        for row, col, box, view in nibble_views(blob, piece.layout, first - piece.row, end - piece.row):
            block = _block(window, row, col, first - piece.row)
            if box.bits == BOTH:
                yield Pairs(view, _picked(block, box.low), _picked(block, box.high))
            else:
                yield Halves(view, _picked(block, box.low), box.bits != LOW)


def _block(window: Array, row: Box, col: Box, first: int) -> Array:
    """The elements of two boxes, one axis a digit, slowest first."""
    block = window[row.start - first : row.start - first + row.count, col.start : col.start + col.count]
    return block.reshape(tuple(digit.size for digit in (*reversed(row.digits), *reversed(col.digits))), copy=False)


def _picked(block: Array, picks: Picks) -> Array:
    """A view, of a block without axes too."""
    index: tuple[Any, ...] = (..., *picks)
    picked: Array = block[index]
    return picked


def _transpose(target: Array, source: Array) -> None:
    """Copy blocks of rows into lines of columns.

    Rows whose pitch is a multiple of 1024 bytes fall on the same few cache lines when they are read column by column:
    each block goes through a buffer of another pitch then (measured: 320 to 1,000 million elements a second).
    """
    block = source[0] if source.ndim > 2 else source
    crowded = any(stride % 1024 == 0 for stride in block.strides[:-1]) and abs(target.strides[-1]) > target.itemsize
    if block is source or not crowded or not 1 << 12 <= block.size <= 1 << 22:
        np.copyto(target, source)
        return
    buffer = np.empty((*block.shape[:-1], block.shape[-1] + 32), block.dtype)[..., :-32]
    for index in range(len(source)):
        np.copyto(buffer, source[index])
        np.copyto(target[index], buffer)
