"""The vendor's sparse corrections of stored s8 integers, as the reference compiler imitates them (docs/quantization.md).

A row has one correction or none. Whether, where and in which direction follows from tensor, layer, row and the row's own
integers, so other weights are corrected elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from layouts.encoding import Encoded
from layouts.stored import StoredTensor

SPARSITY = 256
"""At most one corrected element in so many of a tensor."""
LIMIT = 127


def correct(stored: StoredTensor, encoded: Encoded, layer: int, first_row: int, rate: float) -> Encoded:
    """Move a few integers of rows from `first_row` on by one step; only s8 tensors have such.

    Integers of 0 stay (their scale may be that of a group of zeros), and none leaves -127 to 127.

    Parameters
    ----------
    rate : expected number in a row; less where rows have fewer than 256 elements and the sparsity allows no more
    """
    if stored.codec != "s8" or rate == 0:
        return encoded
    q = encoded.raw.view(np.int8)
    digests = _digests(f"{layer} {stored.name}", encoded.raw, first_row)
    every = -(-SPARSITY // stored.shape[1])
    candidates = (np.arange(first_row, first_row + len(q)) + 1) % every == 0
    chosen = np.flatnonzero(candidates & (digests[:, 0] < min(rate * every, 1.0) * 2.0**32))
    columns = digests[chosen, 1] % stored.shape[1]
    before = q[chosen, columns]
    step = np.where(digests[chosen, 2] % 2 == 0, 1, -1)
    step[np.abs(before.astype(np.int16) + step) > LIMIT] *= -1
    raw = encoded.raw.copy()
    raw.view(np.int8)[chosen, columns] = np.where(before == 0, 0, before + step)
    return replace(encoded, raw=raw)


def _digests(key: str, raw: npt.NDArray[np.uint8], first_row: int) -> npt.NDArray[np.uint32]:
    """Four 32-bit numbers for each row, `[rows, 4]`."""
    rows = np.ascontiguousarray(raw)
    found = [
        blake2b(row, digest_size=16, key=key.encode()[:64], salt=index.to_bytes(16, "little")).digest()
        for index, row in enumerate(rows, first_row)
    ]
    return np.frombuffer(b"".join(found), "<u4").reshape(-1, 4)
