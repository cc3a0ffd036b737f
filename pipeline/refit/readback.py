"""Reading weights back from a blob by the address of each element: a second way, not the views that wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.encoding import Encoded, raw_dtype
from layouts.errors import LayoutError
from layouts.scales import entry_codec
from layouts.stored import Copy, Plane, StoredTensor
from pipeline.container.blob import Bytes
from pipeline.errors import VerifyError

GATHER_ELEMENTS = 1 << 21

Raw = npt.NDArray[np.unsignedinteger[Any]]


def read_back(data: Bytes, stored: StoredTensor, encoded: Encoded, first_row: int, file: Path) -> None:
    """Compare integers and scale entries of rows in every copy with what was intended.

    Raises
    ------
    VerifyError : names tensor, row, copy, and column or group.
    """
    for copy in stored.copies:
        for start, stop in _ranges(stored, copy, first_row, first_row + len(encoded.raw)):
            part = slice(start - first_row, stop - first_row)
            found = gather(data, copy.planes, start, stop, raw_dtype(stored.codec))
            _compare(found, encoded.raw[part], start, f"{stored.name}[{{row}}, {{col}}] {copy.name} copy", file)
            if copy.entries is not None and stored.scales is not None and encoded.entries is not None:
                found = gather(data, (copy.entries,), start, stop, entry_codec(stored.scales.entry).raw_dtype)
                where = f"{stored.name}[{{row}}] {copy.name} copy, scale entry of group {{col}}"
                _compare(found, encoded.entries[part], start, where, file)


def _ranges(stored: StoredTensor, copy: Copy, first: int, end: int) -> Iterator[tuple[int, int]]:
    """The rows of `first:end` that a copy holds, a bounded number of elements at a time."""
    step = max(1, GATHER_ELEMENTS // stored.shape[1])
    for low, high in copy.rows:
        stop = min(high, end)
        for row in range(max(low, first), stop, step):
            yield row, min(row + step, stop)


def _compare(found: Raw, intended: Raw, first_row: int, where: str, file: Path) -> None:
    wrong = found != intended
    if not wrong.any():
        return
    row, col = (int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    at, expected = where.format(row=first_row + row, col=col), int(intended[row, col])
    raise VerifyError("reads back otherwise", file=file, where=at, expected=expected, found=int(found[row, col]))


def gather(data: Bytes, planes: tuple[Plane, ...], start: int, stop: int, dtype: type[np.unsignedinteger[Any]]) -> Raw:
    """Stored integers of rows that planes make up, element by element from their addresses."""
    first, *others = planes
    total = _gather_plane(data, first, start, stop)
    if not others and first.bias == 0:
        return total.astype(dtype, copy=False)
    total = _field(first, total, dtype)
    for plane in others:
        total = total | _field(plane, _gather_plane(data, plane, start, stop), dtype)
    return total


def _field(plane: Plane, words: Raw, dtype: type[np.unsignedinteger[Any]]) -> Raw:
    """The bits of the stored integer that a plane's words stand for."""
    unbiased = (words - words.dtype.type(plane.bias)) & words.dtype.type((1 << plane.bits) - 1)
    field: Raw = unbiased.astype(dtype) << dtype(plane.low_bit)
    return field


def _gather_plane(data: Bytes, plane: Plane, start: int, stop: int) -> Raw:
    """Words of the plane's width: by one index where all elements have the same byte phase, else byte by byte."""
    at, size = plane.addresses(start, stop), plane.width // 8
    if plane.width == 4 and not (at & 3).any():
        nibbles: Raw = (data[at >> 3] >> (at & 4).astype(np.uint8)) & np.uint8(15)
        return nibbles
    if plane.width % 8 or (at & 7).any():
        raise LayoutError("elements are not whole bytes", found=f"{plane.width} bits")
    at >>= 3
    phase = int(at.flat[0]) % size
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
