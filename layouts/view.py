"""Reading and writing tensors in a blob: one strided copy per box, never an index array.

A blob is a contiguous uint8 array or `np.memmap`; only the touched ranges are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np

from layouts.codecs import Float32, Raw
from layouts.encoding import Encoded, decode_rows, raw_dtype
from layouts.entry_codecs import entry_codec
from layouts.errors import LayoutError
from layouts.parts import Part, plane_parts
from layouts.stored import Copy, Plane, StoredTensor
from layouts.strided import Bytes


def read_plane(blob: Bytes, plane: Plane, shape: tuple[int, int], rows: slice | None = None) -> Raw:
    """Stored fields of a plane, bias included.

    Returns
    -------
    unsigned integers of the plane's width (bytes for 4 bits), `[stop - start, cols]`

    Raises
    ------
    LayoutError : rows the plane does not hold, an element outside the blob, elements that are neither whole bytes nor
        halves of bytes.
    """
    start, stop = _held(rows, shape[0], plane.rows)
    if plane.cols != shape[1]:
        raise LayoutError("plane and tensor differ in columns", expected=shape[1], found=plane.cols)
    return _load(blob, plane, start, np.empty((stop - start, shape[1]), _field_dtype(plane)))


def read_encoded(blob: Bytes, stored: StoredTensor, copy: str | None = None, rows: slice | None = None) -> Encoded:
    """What rows of one copy (the first by default) hold: integers, scale and bias entries. Raises as `read_plane` does."""
    source = _copy(stored, copy)
    start, stop = _held(rows, stored.shape[0], source.rows)
    dtype, shape = raw_dtype(stored.codec), (stop - start, stored.shape[1])

    def part(plane: Plane) -> Raw:
        fields = _load(blob, plane, start, np.empty(shape, _field_dtype(plane)))
        if plane.bias == 0 and plane.low_bit == 0:
            return fields.astype(dtype, copy=False)
        bits = (fields - fields.dtype.type(plane.bias)) & fields.dtype.type((1 << plane.bits) - 1)
        shifted: Raw = bits.astype(dtype, copy=False) << dtype(plane.low_bit)
        return shifted

    raw: Raw = reduce(np.bitwise_or, map(part, source.planes))
    for window in source.absent_windows(start, stop):
        raw[window] = 0
    beside = [
        None if plane is None else read_plane(blob, plane, (stored.shape[0], plane.cols), rows)
        for plane in (source.entries, source.bias)
    ]
    return Encoded(raw, beside[0], bias=beside[1])


def read_tensor(blob: Bytes, stored: StoredTensor, copy: str | None = None, rows: slice | None = None) -> Float32:
    """float32 values of rows of one copy (the first by default), `[rows, cols]`. Raises as `read_plane` does."""
    return decode_rows(stored, read_encoded(blob, stored, copy, rows))


def write_tensor(blob: Bytes, stored: StoredTensor, encoded: Encoded, row_start: int = 0) -> None:
    """Write rows from `row_start` on, integers, scale and bias entries, to every copy that holds any of them.

    Parameters
    ----------
    blob : writable
    encoded : as `encode_rows` returns; raw `[rows, cols]`, entries `[rows, groups]` for integer codecs,
        bias `[rows, 1]` where the tensor has bias entries; what is absent from a copy is not written

    Raises
    ------
    LayoutError : another shape or type, rows outside the tensor, a blob that is too short; nothing is written then.
    """
    _check_matrix(stored, encoded.raw, raw_dtype(stored.codec), stored.shape[1], "stored integers")
    _range(slice(row_start, row_start + len(encoded.raw)), stored.shape[0])
    _check_entries(stored, encoded)
    for part in [part for copy in stored.copies for part in _parts(blob, copy, encoded, row_start)]:
        part.store()


def _parts(blob: Bytes, copy: Copy, encoded: Encoded, row_start: int) -> Iterator[Part]:
    for plane in copy.planes:
        yield from plane_parts(blob, plane, _fields(plane, encoded.raw), row_start)
    for beside, fields in ((copy.entries, encoded.entries), (copy.bias, encoded.bias)):
        if beside is not None and fields is not None:
            yield from plane_parts(blob, beside, _fields(beside, fields), row_start)


def _load(blob: Bytes, plane: Plane, start: int, out: Raw) -> Raw:
    """Fill rows from `start` on with what the plane holds of them."""
    for part in plane_parts(blob, plane, out, start):
        part.load()
    return out


def _fields(plane: Plane, raw: Raw) -> Raw:
    """What a plane stores for the integers `raw`, in the plane's own type."""
    if plane.bits == raw.dtype.itemsize * 8 and plane.bias == 0:
        return raw
    bits = (raw >> raw.dtype.type(plane.low_bit)) & raw.dtype.type((1 << plane.bits) - 1)
    fields: Raw = bits.astype(_field_dtype(plane), copy=False)
    if plane.bias:
        fields = (fields + fields.dtype.type(plane.bias)) & fields.dtype.type((1 << plane.width) - 1)
    return fields


def _field_dtype(plane: Plane) -> np.dtype[np.unsignedinteger[Any]]:
    if plane.width not in (4, 8, 16, 32, 64):
        raise LayoutError("elements are not whole bytes", expected="width 4, 8, 16, 32 or 64", found=plane.width)
    return np.dtype(f"<u{-(-plane.width // 8)}")


def _check_matrix(stored: StoredTensor, matrix: Raw, dtype: type, cols: int, what: str) -> None:
    if matrix.dtype != dtype:
        raise LayoutError(f"not {what}", where=stored.name, expected=np.dtype(dtype).name, found=matrix.dtype)
    if matrix.ndim != 2 or matrix.shape[1] != cols:
        raise LayoutError("wrong shape to write", where=stored.name, expected=["rows", cols], found=list(matrix.shape))


def _check_entries(stored: StoredTensor, encoded: Encoded) -> None:
    if stored.scales is None:
        return
    cols, dtype = stored.scales.groups(stored.shape[1]), entry_codec(stored.scales.entry).raw_dtype
    _check_beside(stored, encoded, encoded.entries, (dtype, cols), "scale entries")
    if stored.bias is not None:
        _check_beside(stored, encoded, encoded.bias, (np.uint32, 1), "bias entries")


def _check_beside(
    stored: StoredTensor, encoded: Encoded, entries: Raw | None, kind: tuple[type, int], what: str
) -> None:
    if entries is None:
        raise LayoutError(f"no {what} to write", where=stored.name)
    _check_matrix(stored, entries, *kind, what)
    if len(entries) != len(encoded.raw):
        expected, found = len(encoded.raw), len(entries)
        raise LayoutError(f"{what} of another number of rows", where=stored.name, expected=expected, found=found)


def _copy(stored: StoredTensor, name: str | None) -> Copy:
    return stored.copies[0] if name is None else stored.copy(name)


def _range(rows: slice | None, count: int) -> tuple[int, int]:
    start, stop = (0, count) if rows is None else (rows.start or 0, count if rows.stop is None else rows.stop)
    if (rows is not None and rows.step not in (None, 1)) or not 0 <= start <= stop <= count:
        raise LayoutError("rows outside the tensor", expected=f"0 to {count}", found=rows)
    return start, stop


def _held(rows: slice | None, count: int, ranges: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    start, stop = _range(rows, count)
    if not any(first <= start and stop <= end for first, end in ranges):
        raise LayoutError("rows are not stored", expected=ranges, found=f"{start} to {stop}")
    return start, stop
