"""Reading weights back from a blob by the address of each element: a second way, not the views that wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.digits import Int64
from layouts.encoding import Encoded, raw_dtype
from layouts.entry_codecs import entry_codec
from layouts.errors import LayoutError
from layouts.stored import Copy, Plane, StoredTensor
from pipeline.container.blob import Bytes
from pipeline.errors import VerifyError

GATHER_ELEMENTS = 1 << 21

Raw = npt.NDArray[np.unsignedinteger[Any]]
Mask = npt.NDArray[np.bool_]


def read_back(data: Bytes, stored: StoredTensor, encoded: Encoded, first_row: int, file: Path) -> None:
    """Compare integers, scale and bias entries of rows in every copy with what was intended.

    Raises
    ------
    VerifyError : names tensor, row, copy, and column or group.
    """
    for copy in stored.copies:
        for start, stop in _ranges(stored, copy, first_row, first_row + len(encoded.raw)):
            intended = encoded.rows(slice(start - first_row, stop - first_row))
            present = copy.present(start, stop) if copy.absent else None
            found = gather(data, copy.planes, start, stop, raw_dtype(stored.codec), present)
            _compare(found, intended.raw, start, f"{stored.name}[{{row}}, {{col}}] {copy.name} copy", file, present)
            where = f"{stored.name}[{{row}}] {copy.name} copy, "
            if copy.entries is not None and stored.scales is not None and intended.entries is not None:
                found = gather(data, (copy.entries,), start, stop, entry_codec(stored.scales.entry).raw_dtype)
                _compare(found, intended.entries, start, f"{where}scale entry of group {{col}}", file)
            if copy.bias is not None and intended.bias is not None:
                found = gather(data, (copy.bias,), start, stop, np.uint32)
                _compare(found, intended.bias, start, f"{where}bias entry", file)


def _ranges(stored: StoredTensor, copy: Copy, first: int, end: int) -> Iterator[tuple[int, int]]:
    """The rows of `first:end` that a copy holds, a bounded number of elements at a time."""
    step = max(1, GATHER_ELEMENTS // stored.shape[1])
    for low, high in copy.rows:
        stop = min(high, end)
        for row in range(max(low, first), stop, step):
            yield row, min(row + step, stop)


def _compare(found: Raw, intended: Raw, first_row: int, where: str, file: Path, present: Mask | None = None) -> None:
    wrong = found != intended if present is None else (found != intended) & present
    if not wrong.any():
        return
    row, col = (int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    at, expected = where.format(row=first_row + row, col=col), int(intended[row, col])
    raise VerifyError("reads back otherwise", file=file, where=at, expected=expected, found=int(found[row, col]))


def gather(
    data: Bytes,
    planes: tuple[Plane, ...],
    start: int,
    stop: int,
    dtype: type[np.unsignedinteger[Any]],
    present: Mask | None = None,
) -> Raw:
    """Stored integers of rows that planes make up, element by element from their addresses; 0 where not `present`."""
    first, *others = planes
    total = _gather_plane(data, first, start, stop, present)
    if not others and first.bias == 0:
        return total.astype(dtype, copy=False)
    total = _field(first, total, dtype)
    for plane in others:
        total = total | _field(plane, _gather_plane(data, plane, start, stop, present), dtype)
    return total if present is None else total * present


def _field(plane: Plane, words: Raw, dtype: type[np.unsignedinteger[Any]]) -> Raw:
    """The bits of the stored integer that a plane's words stand for."""
    unbiased = (words - words.dtype.type(plane.bias)) & words.dtype.type((1 << plane.bits) - 1)
    field: Raw = unbiased.astype(dtype) << dtype(plane.low_bit)
    return field


def _gather_plane(data: Bytes, plane: Plane, start: int, stop: int, present: Mask | None = None) -> Raw:
    """Words of the plane's width, 0 where not present."""
    if present is None:
        return _words(data, plane, plane.addresses(start, stop))
    at = plane.addresses(start, stop, present.shape[1])[present]
    words = _words(data, plane, at)
    found: Raw = np.zeros(present.shape, words.dtype)
    found[present] = words
    return found


def _words(data: Bytes, plane: Plane, at: Int64) -> Raw:
    """Words at bit addresses: by one index where all elements have the same byte phase, else byte by byte."""
    size = plane.width // 8
    if plane.width == 4 and not (at & 3).any():
        nibbles: Raw = (data[at >> 3] >> (at & 4).astype(np.uint8)) & np.uint8(15)
        return nibbles
    if plane.width % 8 or (at & 7).any():
        raise LayoutError("elements are not whole bytes", found=f"{plane.width} bits")
    at >>= 3
    phase = int(at.flat[0]) % size if at.size else 0
    at -= phase
    if (at % size).any():
        at += phase
        words = np.zeros(at.shape, np.uint64)
        for byte in range(size):
            words |= data[at + byte].astype(np.uint64) << np.uint64(8 * byte)
        return words
    words_of_phase = data[phase : phase + (data.size - phase) // size * size].view(f"<u{size}")
    found: Raw = words_of_phase[at // size]
    return found
