"""Reading weights back from a blob by the address of each element: a second way, not the views that wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.errors import LayoutError
from layouts.stored import Copy, StoredTensor
from pipeline.axmodel.blob import Bytes
from pipeline.errors import InternalError, VerifyError

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


def gather(data: Bytes, copy: Copy, start: int, stop: int) -> npt.NDArray[np.uint64]:
    """Stored integers of rows of a copy, element by element from their addresses; whole bytes only."""
    total: npt.NDArray[np.uint64] | None = None
    for plane in copy.planes:
        at = plane.addresses(start, stop)
        if plane.width % 8 or (at % 8).any():
            raise LayoutError("elements are not whole bytes", where=copy.name)
        at //= 8
        value = np.zeros(at.shape, np.uint64)
        for byte in range(plane.width // 8):
            value |= data[at + byte].astype(np.uint64) << np.uint64(8 * byte)
        part = (value - np.uint64(plane.bias)) << np.uint64(plane.low_bit)
        total = part if total is None else total | part
    if total is None:
        raise InternalError("a copy without planes")
    return total
