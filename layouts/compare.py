"""What a blob holds of a tensor, against what known weights become there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32, Raw
from layouts.encoding import Encoded, encode_rows, with_bias
from layouts.errors import LayoutError
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
    """Of one copy: elements off by more than a correction, scale and bias entries that differ, corrected elements."""

    elements: int = 0
    entries: int = 0
    bias: int = 0
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
        bias = known_bias(stored, known, rows)
        expected = encode_rows(stored, known(stored.name, rows), bias=bias, first_row=rows.start)
        for copy in stored.copies:
            for part in _held(copy, rows):
                inside = slice(part.start - rows.start, part.stop - rows.start)
                beside = None if bias is None else bias[inside]
                _compare(found[copy.name], (blob, stored, copy, part), expected.rows(inside), beside)
    return found


def known_bias(stored: StoredTensor, known: ReadWeight, rows: slice) -> Float32 | None:
    """The known bias of rows, float32 `[rows]`; None where the tensor has none that has a name."""
    if stored.bias is None or not stored.bias.tensor:
        return None
    values = known(stored.bias.tensor, slice(0, 1))
    if values.size != stored.shape[0]:
        expected, found = stored.shape[0], list(values.shape)
        raise LayoutError("bias of another shape", where=stored.bias.tensor, expected=expected, found=found)
    return values.reshape(-1)[rows]


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
    into: Differences, at: tuple[Bytes, StoredTensor, Copy, slice], expected: Encoded, bias: Float32 | None
) -> None:
    blob, stored, copy, part = at
    found = read_encoded(blob, stored, copy.name, part)
    wrong = found.raw != expected.raw
    for window in copy.absent_windows(part.start, part.stop):
        wrong[window] = False
    if stored.codec in INTEGERS and wrong.any():
        near = wrong & one_step(found.raw, expected.raw, stored.codec)
        into.corrected += int(np.count_nonzero(near))
        wrong &= ~near
        if (
            stored.bias is not None and stored.bias.zero_point and near.any()
        ):  # the bias entry answers for what is stored
            own = replace(expected, raw=np.where(near, found.raw, expected.raw))
            expected = with_bias(stored, own, bias, part.start)
    into.elements += into.add("elements", wrong, part.start)
    if found.entries is not None and expected.entries is not None:
        into.entries += into.add("scale entries", found.entries != expected.entries, part.start)
    if found.bias is not None and expected.bias is not None:
        into.bias += into.add("bias entries", found.bias != expected.bias, part.start)


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
        counts = {"elements": copy.elements, "scale entries": copy.entries, "bias entries": copy.bias}
        faults += [f"{where}: {count} {what}, first {copy.first[what]}" for what, count in counts.items() if count]
        limit = stored.shape[0] * stored.shape[1] // SPARSITY
        if copy.corrected > limit:
            faults.append(f"{where}: {copy.corrected} elements one step off, at most {limit} may be")
    return faults
