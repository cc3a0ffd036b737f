"""What an engine stores for a weight under each way of choosing scales (docs/quantization.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32
from layouts.encoding import Encoded, encode_rows
from layouts.errors import ScaleRefused
from layouts.integers import integer_codec
from layouts.scales import Scales, entry_codec
from layouts.stored import StoredTensor
from layouts.view import read_encoded
from pipeline.container.blob import Bytes
from pipeline.errors import ToolchainError

ScaleMode = Literal["refit", "search", "engine"]
ENGINE: ScaleMode = "engine"

ELEMENTS_AT_A_TIME = 1 << 20

Raw = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Chosen:
    """Rows as they are to be stored, and how many integers are the engine's own though the new one is another."""

    encoded: Encoded
    corrected_kept: int = 0


def choose_rows(
    stored: StoredTensor, values: Float32, mode: ScaleMode, engine: Bytes, first_row: int, file: Path
) -> Chosen:
    """Encode whole rows.

    Parameters
    ----------
    values : float32 `[rows, cols]`
    engine : weight blob of `file`, whose scales and corrections are kept in mode `engine`; otherwise not read

    Raises
    ------
    LayoutError : a value that the codec cannot hold; ScaleRefused for a scale entry that would be 0 or infinite
    ToolchainError : a scale entry of the engine that is 0, infinite or no number, or whose halves contradict each other
    """
    if mode != ENGINE or stored.scales is None:
        return Chosen(encode_rows(stored, values, mode))
    own = read_encoded(engine, stored, rows=slice(first_row, first_row + len(values)))
    new = encode_rows(stored, values, given=engine_scales(stored, stored.scales, own, first_row, file))
    kind = integer_codec(stored.codec)
    steps = kind.from_raw(own.raw).astype(np.int16) - kind.from_raw(new.raw)
    near = np.abs(steps) <= 1
    kept = int(np.count_nonzero(near & (steps != 0)))
    return Chosen(Encoded(np.where(near, own.raw, new.raw), own.entries, new.clipped), kept)


def engine_scales(stored: StoredTensor, scales: Scales, own: Encoded, first_row: int, file: Path) -> Float32:
    """The scales of an engine's rows from `first_row` on, float32 `[rows, groups]`.

    Raises ToolchainError naming tensor, row and group.
    """
    kind, entries = entry_codec(scales.entry), own.entries
    if entries is None:
        raise ToolchainError("no scale entries", file=file, where=stored.name)
    usable = kind.usable(entries)
    held: Float32 = np.where(usable, kind.decode(entries), np.float32(1))
    try:
        bad = ~usable | (kind.encode(held) != entries)
    except ScaleRefused as error:
        bad = ~usable
        bad[error.at] = True
    if bad.any():
        row, group = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        where = f"{stored.name}[{first_row + row}], scale entry of group {group}"
        fault = "is 0, infinite or no number" if not usable[row, group] else "contradicts itself"
        raise ToolchainError(
            fault, file=file, where=where, found=f"{int(entries[row, group]):#0{kind.width // 4 + 2}x}"
        )
    return held


def row_steps(shape: tuple[int, int]) -> Iterator[slice]:
    """Ranges of rows that are held in memory at once."""
    rows, cols = shape
    step = max(1, ELEMENTS_AT_A_TIME // cols)
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))


def stored_digest(blob: Bytes, stored: StoredTensor) -> str:
    """Hex SHA-256 over the stored integers and the scale entries of a tensor's first copy, row by row."""
    integers, entries = hashlib.sha256(), hashlib.sha256()
    for rows in row_steps(stored.shape):
        part = read_encoded(blob, stored, rows=rows)
        integers.update(np.ascontiguousarray(part.raw).data)
        if part.entries is not None:
            entries.update(np.ascontiguousarray(part.entries.astype(part.entries.dtype.newbyteorder("<"))).data)
    return hashlib.sha256(integers.digest() + entries.digest()).hexdigest()
