"""What an engine stores for a weight under each way of choosing scales (docs/quantization.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from layouts.bias import Bias
from layouts.codecs import Float32
from layouts.encoding import Encoded, encode_rows, with_bias
from layouts.entry_codecs import entry_codec
from layouts.errors import ScaleRefused
from layouts.integers import integer_codec
from layouts.scales import Scales
from layouts.stored import Copy, StoredTensor
from layouts.view import read_encoded
from pipeline.container.blob import Bytes
from pipeline.errors import InternalError, ToolchainError

ScaleMode = Literal["refit", "search", "engine"]
ENGINE: ScaleMode = "engine"

ELEMENTS_AT_A_TIME = 1 << 20
FLOAT_ROUNDING = 2.0**-21

Raw = npt.NDArray[np.unsignedinteger[Any]]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Chosen:
    """Rows as they are to be stored, and how many integers are the engine's own though the new one is another."""

    encoded: Encoded
    corrected_kept: int = 0


@dataclass(frozen=True)
class Given:
    """Rows from `first` on: float32 `[rows, cols]`, and their biases `[rows]` where bias entries are made of some."""

    first: int
    values: Float32
    bias: Float32 | None = None


def bias_name(stored: StoredTensor) -> str:
    """The checkpoint's bias that the bias entries of a weight are made of, "" for none."""
    return "" if stored.bias is None else stored.bias.tensor


def choose_rows(stored: StoredTensor, given: Given, mode: ScaleMode, engine: Bytes, file: Path) -> Chosen:
    """Encode whole rows.

    Parameters
    ----------
    engine : weight blob of `file`, whose scales and corrections are kept in mode `engine`; otherwise not read

    Raises
    ------
    LayoutError : a value that the codec cannot hold; ScaleRefused for a scale entry that would be 0 or infinite
    ToolchainError : a scale entry of the engine that is 0, infinite or no number, or whose halves contradict each other
    """
    first, values, bias = given.first, given.values, given.bias
    if mode != ENGINE or stored.scales is None:
        return Chosen(encode_rows(stored, values, mode, bias=bias, first_row=first))
    own = read_encoded(engine, stored, rows=slice(first, first + len(values)))
    scales = engine_scales(stored, stored.scales, own, first, file)
    new = encode_rows(stored, values, given=scales, bias=bias, first_row=first)
    kind = integer_codec(stored.codec)
    steps = kind.from_raw(own.raw).astype(np.int16) - kind.from_raw(new.raw)
    near = (np.abs(steps) <= 1) & stored.copies[0].present(first, first + len(values))
    kept = int(np.count_nonzero(near & (steps != 0)))
    mixed = Encoded(np.where(near, own.raw, new.raw), own.entries, new.clipped)
    return Chosen(_with_own_bias(stored, mixed, own, bias, first), kept)


def _with_own_bias(stored: StoredTensor, mixed: Encoded, own: Encoded, bias: Float32 | None, first: int) -> Encoded:
    """Bias entries that follow from the integers; the engine's where they are within a step of them."""
    if stored.bias is None or stored.scales is None or own.bias is None or own.entries is None:
        return mixed
    fresh = with_bias(stored, mixed, bias, first)
    entries = entry_codec(stored.scales.entry).decode(own.entries)[:, :1].astype(np.float64)
    rounding = 1 / entries if stored.scales.affine else np.full_like(entries, FLOAT_ROUNDING)
    return replace(fresh, bias=_nearest_bias(stored.bias, own.bias, fresh.bias, entries, rounding))


def _nearest_bias(rule: Bias, own: Raw, fresh: Raw | None, entries: Float64, rounding: Float64) -> Raw:
    """The engine's bias entries where they are a step from the fresh ones, or as far as the rounding of scales moves them.

    entries, rounding : of each row, the number that its scale entry holds, and how much of a scale it may lack
    """
    if fresh is None:
        raise InternalError("no bias entries")
    kind, step = (np.float32, entries) if rule.entry == "fp32" else (np.int32, np.float64(1))
    held, new = (bias.view(kind).astype(np.float64) for bias in (own, fresh))
    near = np.abs(held - new) <= step + np.abs(new) * rounding
    return np.where(near, own, fresh)


def engine_scales(stored: StoredTensor, scales: Scales, own: Encoded, first_row: int, file: Path) -> Float32:
    """The scales of an engine's rows from `first_row` on, float32 `[rows, groups]`.

    Raises ToolchainError naming tensor, row and group.
    """
    kind, entries = entry_codec(scales.entry), own.entries
    if entries is None:
        raise ToolchainError("no scale entries", file=file, where=stored.name)
    usable = kind.usable(entries)
    held: Float32 = np.where(usable, scales.decode(entries), np.float32(1))
    try:
        bad = ~usable | (scales.encode(held) != entries)
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


def held_rows(stored: StoredTensor, copy: Copy) -> Iterator[slice]:
    """The rows of a copy, by ranges of `row_steps`."""
    for low, high in copy.rows:
        for rows in row_steps((high - low, stored.shape[1])):
            yield slice(low + rows.start, low + rows.stop)


def stored_digest(blob: Bytes, stored: StoredTensor) -> str:
    """Hex SHA-256 over the stored integers, the scale entries and the bias entries of a tensor's first copy, row by row."""
    integers, entries = hashlib.sha256(), hashlib.sha256()
    for rows in row_steps(stored.shape):
        part = read_encoded(blob, stored, rows=rows)
        integers.update(np.ascontiguousarray(part.raw).data)
        for beside in (part.entries, part.bias):
            if beside is not None:
                entries.update(np.ascontiguousarray(beside.astype(beside.dtype.newbyteorder("<"))).data)
    return hashlib.sha256(integers.digest() + entries.digest()).hexdigest()
