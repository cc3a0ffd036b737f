"""What differs between two engines: by tensor and copy, and every byte that no tensor owns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32
from layouts.encoding import Encoded, decode_rows
from layouts.integers import INTEGERS
from layouts.stored import Copy, EngineLayout, StoredTensor
from layouts.view import read_encoded
from pipeline.container.blob import Bytes, read_blob
from pipeline.refit.choose import held_rows
from pipeline.refit.outside import checked_blob
from pipeline.refit.stray import Region, StrayBytes, compare_regions

Steps = npt.NDArray[np.int64]


@dataclass
class TensorChange:
    """How one copy of a tensor differs.

    changed : stored integers that differ, of `elements`; `first` is the row and column of the first
    largest : the largest absolute difference of the values that they stand for; also where only a scale differs
    steps : the largest difference of stored integers; of floats, how many numbers of the codec lie between, plus 1
    scale_entries, bias_entries : how many differ
    """

    tensor: str
    copy: str
    elements: int = 0
    changed: int = 0
    first: tuple[int, int] | None = None
    largest: float = 0.0
    steps: int = 0
    scale_entries: int = 0
    bias_entries: int = 0

    @property
    def differs(self) -> bool:
        return bool(self.changed or self.scale_entries or self.bias_entries)


@dataclass
class EngineDifference:
    """Two engine files.

    tensors : every copy of every tensor of the layout, or nothing without a layout
    stray : bytes that differ and are no tensor's; sizes that differ
    """

    tensors: list[TensorChange] = field(default_factory=list)
    stray: StrayBytes = field(default_factory=StrayBytes)

    @property
    def differs(self) -> bool:
        return self.stray.differs or any(change.differs for change in self.tensors)


def diff_engines(a: Path, b: Path, layout: EngineLayout | None) -> EngineDifference:
    """Compare two engines of one layout; without a layout, two files byte by byte.

    Raises MismatchError for weights of another size than the layout's.
    """
    sizes = a.stat().st_size, b.stat().st_size
    if layout is None:
        return EngineDifference(stray=compare_regions(a, b, [Region("file", (0, 0), sizes)], None))
    blobs = checked_blob(a, layout), checked_blob(b, layout)
    starts, size = (blobs[0].offset, blobs[1].offset), layout.blob_bytes
    ends = starts[0] + size, starts[1] + size
    regions = [
        Region("before the weights", (0, 0), starts),
        Region("weights", starts, (size, size)),
        Region("behind the weights", ends, (sizes[0] - ends[0], sizes[1] - ends[1])),
    ]
    data = read_blob(a), read_blob(b)
    changes = [_change(stored, copy, *data) for stored in layout.tensors for copy in stored.copies]
    return EngineDifference(changes, compare_regions(a, b, regions, layout))


def _change(stored: StoredTensor, copy: Copy, a: Bytes, b: Bytes) -> TensorChange:
    change = TensorChange(stored.name, copy.name)
    for rows in held_rows(stored, copy):
        present = copy.present(rows.start, rows.stop)
        parts = [read_encoded(blob, stored, copy.name, rows) for blob in (a, b)]
        _add(change, stored, parts[0], parts[1], present, rows.start)
    return change


def _add(
    change: TensorChange, stored: StoredTensor, a: Encoded, b: Encoded, present: npt.NDArray[np.bool_], row: int
) -> None:
    differs = (a.raw != b.raw) & present
    change.elements += int(np.count_nonzero(present))
    if differs.any():
        at = np.unravel_index(int(np.argmax(differs)), differs.shape)
        change.first = change.first or (row + int(at[0]), int(at[1]))
        change.changed += int(np.count_nonzero(differs))
        apart = np.abs(_steps(a.raw[differs], stored.codec) - _steps(b.raw[differs], stored.codec))
        change.steps = max(change.steps, int(apart.max()))
    change.scale_entries += _unequal(a.entries, b.entries)
    change.bias_entries += _unequal(a.bias, b.bias)
    largest = _largest(decode_rows(stored, a), decode_rows(stored, b), present)
    change.largest = float(np.fmax(change.largest, largest))


def _unequal(a: npt.NDArray[Any] | None, b: npt.NDArray[Any] | None) -> int:
    return 0 if a is None or b is None else int(np.count_nonzero(a != b))


def _largest(a: Float32, b: Float32, present: npt.NDArray[np.bool_]) -> float:
    """The largest difference of numbers; infinite where one is no number, for engines may hold anything."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a.astype(np.float64) - b)[present]
    same = (a == b)[present] | (np.isnan(a) & np.isnan(b))[present]
    return float(np.where(same, 0, np.nan_to_num(apart, nan=np.inf)).max(initial=0))


def _steps(raw: npt.NDArray[Any], codec: str) -> Steps:
    """Stored numbers as integers in the order of their values, neighbours one apart."""
    if codec in INTEGERS:
        return INTEGERS[codec].from_raw(raw).astype(np.int64)
    top = 1 << (raw.dtype.itemsize * 8 - 1)
    wide = raw.astype(np.int64)
    return np.where(wide >= top, top - wide, wide)
