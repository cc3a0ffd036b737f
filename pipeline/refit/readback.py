"""Reading weights back from a blob by the address of each element: a second way, not the views that wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.errors import LayoutError
from layouts.stored import Copy, Plane, StoredTensor
from pipeline.axmodel.blob import Bytes
from pipeline.errors import VerifyError

GATHER_ELEMENTS = 1 << 21

Raw = npt.NDArray[np.unsignedinteger[Any]]


def read_back(data: Bytes, stored: StoredTensor, raw: Raw, first_row: int, file: Path) -> None:
    """Compare every copy of rows with the intended stored integers, by address and not through the writing views.

    Raises
    ------
    VerifyError : names copy and element.
    """
    step = max(1, GATHER_ELEMENTS // stored.shape[1])
    for copy in stored.copies:
        for low, high in copy.rows:
            start, stop = max(low, first_row), min(high, first_row + len(raw))
            for row in range(start, stop, step):
                end = min(row + step, stop)
                found = gather(data, copy, row, end)
                wrong = found != raw[row - first_row : end - first_row]
                if wrong.any():
                    r, c = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
                    where = f"{stored.name}[{row + int(r)}, {int(c)}] {copy.name} copy"
                    expected = int(raw[row - first_row + int(r), int(c)])
                    raise VerifyError(
                        "reads back otherwise", file=file, where=where, expected=expected, found=int(found[r, c])
                    )


def gather(data: Bytes, copy: Copy, start: int, stop: int) -> Raw:
    """Stored integers of rows of a copy, element by element from their addresses; whole bytes only."""
    first, *others = copy.planes
    total = _gather_plane(data, first, start, stop)
    if not others and first.bias == 0:
        return total
    total = _field(first, total)
    for plane in others:
        total = total | _field(plane, _gather_plane(data, plane, start, stop))
    return total


def _field(plane: Plane, words: Raw) -> npt.NDArray[np.uint64]:
    """The bits of the stored integer that a plane's words stand for."""
    unbiased = words.astype(np.uint64) - np.uint64(plane.bias)
    field: npt.NDArray[np.uint64] = (unbiased & np.uint64((1 << plane.bits) - 1)) << np.uint64(plane.low_bit)
    return field


def _gather_plane(data: Bytes, plane: Plane, start: int, stop: int) -> Raw:
    """Words of the plane's width: by one index where all elements have the same byte phase, else byte by byte."""
    at, size = plane.addresses(start, stop), plane.width // 8
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
