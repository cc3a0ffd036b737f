"""Reading and writing tensors in a blob: one strided copy per box, never an index array.

A blob is a contiguous uint8 array or `np.memmap`; only the touched ranges are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from layouts.codecs import Float32, Raw, codec
from layouts.errors import LayoutError
from layouts.stored import Copy, Plane, StoredTensor
from layouts.strided import Array, Bytes, element_views


def read_plane(blob: Bytes, plane: Plane, shape: tuple[int, int], rows: slice | None = None) -> Raw:
    """Stored fields of a plane, bias included.

    Returns
    -------
    unsigned integers of the plane's width, `[stop - start, cols]`

    Raises
    ------
    LayoutError : rows the plane does not hold, an element outside the blob, elements that are not whole bytes.
    """
    start, stop = _range(rows, shape[0])
    if not any(first <= start and stop <= end for first, end in plane.rows):
        raise LayoutError("rows are not stored", expected=plane.rows, found=f"{start} to {stop}")
    if plane.cols != shape[1]:
        raise LayoutError("plane and tensor differ in columns", expected=shape[1], found=plane.cols)
    out: Raw = np.empty((stop - start, shape[1]), f"<u{-(-plane.width // 8)}")
    for stored, dense in _pairs(blob, plane, out, start):
        np.copyto(dense, stored)
    return out


def read_raw(blob: Bytes, stored: StoredTensor, copy: str | None = None, rows: slice | None = None) -> Raw:
    """The codec's stored integers of rows of one copy (the first by default), `[rows, cols]`."""
    dtype = codec(stored.codec).raw_dtype

    def part(plane: Plane) -> Raw:
        fields = read_plane(blob, plane, stored.shape, rows)
        if plane.bias == 0 and plane.low_bit == 0:
            return fields.astype(dtype, copy=False)
        mask = dtype((1 << plane.bits) - 1)
        shifted: Raw = ((fields.astype(dtype) - dtype(plane.bias)) & mask) << dtype(plane.low_bit)
        return shifted

    raw: Raw = reduce(np.bitwise_or, map(part, _copy(stored, copy).planes))
    return raw


def read_tensor(blob: Bytes, stored: StoredTensor, copy: str | None = None, rows: slice | None = None) -> Float32:
    """float32 values of rows of one copy (the first by default), `[rows, cols]`. Raises as `read_plane` does."""
    return codec(stored.codec).decode(read_raw(blob, stored, copy, rows))


def write_tensor(blob: Bytes, stored: StoredTensor, raw: Raw, row_start: int = 0) -> None:
    """Write stored integers of rows `row_start:row_start + len(raw)` to every copy that holds any of them.

    Parameters
    ----------
    blob : writable
    raw : `[rows, cols]` in the codec's `raw_dtype`, as its `encode` returns

    Raises
    ------
    LayoutError : another shape or type, rows outside the tensor, a blob that is too short; nothing is written then.
    """
    kind = codec(stored.codec)
    if raw.dtype != kind.raw_dtype:
        expected = np.dtype(kind.raw_dtype).name
        raise LayoutError("not stored integers", where=stored.name, expected=expected, found=raw.dtype)
    if raw.ndim != 2 or raw.shape[1] != stored.shape[1]:
        found = list(raw.shape)
        raise LayoutError("wrong shape to write", where=stored.name, expected=["rows", stored.shape[1]], found=found)
    _range(slice(row_start, row_start + len(raw)), stored.shape[0])
    targets = [
        (target, source)
        for copy in stored.copies
        for plane in copy.planes
        for target, source in _pairs(blob, plane, _fields(plane, raw), row_start)
    ]
    for target, source in targets:
        _transpose(target, source)


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


def _fields(plane: Plane, raw: Raw) -> Raw:
    """What a plane stores for the integers `raw`."""
    if plane.bits == raw.dtype.itemsize * 8 and plane.bias == 0:
        return raw
    bits = (raw >> raw.dtype.type(plane.low_bit)) & raw.dtype.type((1 << plane.bits) - 1)
    fields: Raw = (bits + raw.dtype.type(plane.bias)) & raw.dtype.type((1 << plane.bits) - 1)
    return fields.astype(f"<u{-(-plane.width // 8)}", copy=False)


def _pairs(blob: Bytes, plane: Plane, dense: Raw, start: int) -> Iterator[tuple[Array, Array]]:
    """Views of the blob and of `dense` (rows from `start` of the tensor) that hold the same elements in one shape."""
    stop = start + len(dense)
    for piece in plane.pieces:
        first, end = max(start, piece.row), min(stop, piece.row_stop)
        if first >= end:
            continue
        for row, col, view in element_views(blob, piece.layout, first - piece.row, end - piece.row):
            top, left = piece.row + row.start - start, piece.col + col.start
            block = dense[top : top + row.count, left : left + col.count]
            yield view, block.reshape(view.shape, copy=False)


def _copy(stored: StoredTensor, name: str | None) -> Copy:
    return stored.copies[0] if name is None else stored.copy(name)


def _range(rows: slice | None, count: int) -> tuple[int, int]:
    start, stop = (0, count) if rows is None else (rows.start or 0, count if rows.stop is None else rows.stop)
    if (rows is not None and rows.step not in (None, 1)) or not 0 <= start <= stop <= count:
        raise LayoutError("rows outside the tensor", expected=f"0 to {count}", found=rows)
    return start, stop
