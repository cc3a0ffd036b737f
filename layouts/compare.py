"""What a blob holds of a tensor, against what known weights become there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32, Raw
from layouts.encoding import Encoded, encode_rows
from layouts.integers import INTEGERS
from layouts.stored import Copy, StoredTensor
from layouts.view import read_encoded

Bytes = npt.NDArray[np.uint8]
ReadWeight = Callable[[str, slice], Float32]
"""(tensor name, row range) -> float32 `[rows, cols]`, a vector as one row; gains that are folded in are in the values."""

ELEMENTS_AT_A_TIME = 1 << 18
SPARSITY = 256
"""A compiler corrects at most one element of so many by one step."""


@dataclass
class Differences:
    """Of one copy: elements that are off by more than a correction, scale entries that differ, corrected elements."""

    elements: int = 0
    entries: int = 0
    corrected: int = 0
    first: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, wrong: npt.NDArray[np.bool_], row: int) -> int:
        """Count wrong places of rows from `row` on and note the first."""
        count = int(np.count_nonzero(wrong))
        if count and what not in self.first:
            at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            self.first[what] = f"[{row + int(at[0])}, {int(at[1])}]"
        return count


def compare_tensor(stored: StoredTensor, blob: Bytes, known: ReadWeight) -> dict[str, Differences]:
    """Copy -> how it differs from the known weights. Raises LayoutError for weights that the codec cannot hold."""
    found = {copy.name: Differences() for copy in stored.copies}
    for rows in row_ranges(stored.shape):
        expected = encode_rows(stored, known(stored.name, rows))
        for copy in stored.copies:
            for part in _held(copy, rows):
                _compare(found[copy.name], stored, read_encoded(blob, stored, copy.name, part), expected, rows, part)
    return found


def row_ranges(shape: tuple[int, int]) -> Iterator[slice]:
    """Ranges of rows of some 2^18 elements."""
    step = max(1, ELEMENTS_AT_A_TIME // shape[1])
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def _held(copy: Copy, rows: slice) -> Iterator[slice]:
    for low, high in copy.rows:
        start, stop = max(low, rows.start), min(high, rows.stop)
        if start < stop:
            yield slice(start, stop)


def _compare(
    into: Differences, stored: StoredTensor, found: Encoded, expected: Encoded, rows: slice, part: slice
) -> None:
    inside = slice(part.start - rows.start, part.stop - rows.start)
    wrong = found.raw != expected.raw[inside]
    if stored.codec in INTEGERS and wrong.any():
        near = wrong & one_step(found.raw, expected.raw[inside], stored.codec)
        into.corrected += int(np.count_nonzero(near))
        wrong &= ~near
    into.elements += into.add("elements", wrong, part.start)
    if found.entries is not None and expected.entries is not None:
        into.entries += into.add("scale entries", found.entries != expected.entries[inside], part.start)


def one_step(a: Raw, b: Raw, codec: str) -> npt.NDArray[np.bool_]:
    """Where two stored integers are exactly one apart."""
    kind = INTEGERS[codec]
    distance = kind.from_raw(a).astype(np.int16) - kind.from_raw(b)
    near: npt.NDArray[np.bool_] = np.abs(distance) == 1
    return near


def faults_of(stored: StoredTensor, found: dict[str, Differences]) -> list[str]:
    """What is wrong with each copy, in words; too many corrected elements are a fault."""
    faults = []
    for name, copy in found.items():
        where = f"{stored.name} {name} copy"
        counts = {"elements": copy.elements, "scale entries": copy.entries}
        faults += [f"{where}: {count} {what}, first {copy.first[what]}" for what, count in counts.items() if count]
        limit = stored.shape[0] * stored.shape[1] // SPARSITY
        if copy.corrected > limit:
            faults.append(f"{where}: {copy.corrected} elements one step off, at most {limit} may be")
    return faults
