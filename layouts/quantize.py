"""Float32 to stored integers and scales, and back: the rules of docs/quantization.md, exact on every machine.

Temporaries hold a bounded number of elements, or a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.affine import affine_scales, dequantize_affine, quantize_affine
from layouts.entry_codecs import Held, entry_codec
from layouts.errors import LayoutError, ScaleRefused
from layouts.integers import Int8, IntegerCodec
from layouts.scales import Float32, Scales

SEARCH_STEPS = 32
SEARCH_PARTS = 64
ELEMENTS_AT_A_TIME = 1 << 16

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


def largest(values: Float32, scales: Scales) -> Float32:
    """The largest magnitude that each entry answers for, float32 `[rows, groups]`; equal along a row when shared.

    Raises LayoutError for other types, NaN and infinities.
    """
    if values.dtype != np.float32:
        raise LayoutError("quantization takes float32", expected="float32", found=values.dtype)
    most = np.empty((len(values), scales.groups(values.shape[1])), np.float32)
    for groups, part in _grouped(values, scales.group):
        np.maximum(part.max(axis=2), -part.min(axis=2), out=most[:, groups])
    if not np.isfinite(most).all():
        at = [int(i) for i in np.unravel_index(int(np.argmin(np.isfinite(values))), values.shape)]
        raise LayoutError(f"element {at} is not finite", expected="a number")
    if scales.shared:
        most[...] = most.max(axis=1, keepdims=True)
    return most


def refit_scales(values: Float32, scales: Scales, kind: IntegerCodec) -> Held:
    """The least stored scale under which nothing clips, float32 `[rows, groups]`; `scales.zero` where all values are 0.

    Raises
    ------
    LayoutError : a value that is not finite; ScaleRefused for a scale that the entry cannot hold
    """
    if scales.affine:
        return affine_scales(values, kind, scales.zero, 1 / scales.factor)
    return _scales_for(largest(values, scales), scales, kind)


def search_scales(values: Float32, scales: Scales, kind: IntegerCodec) -> Held:
    """Of `refit_scales` and scales for 1 - j/64 of the largest magnitude, j = 0 to 31, the one of least squared error.

    The error of an entry is the float64 sum of (value - q * scale)^2 over what it answers for; the lowest j among
    equals. Affine scales are not searched for: they are those of `refit_scales`.
    """
    if scales.affine:
        return refit_scales(values, scales, kind)
    most = largest(values, scales)
    best = _scales_for(most, scales, kind)
    for rows in _blocks(values):
        if scales.shared:
            best[rows] = _search(values[rows], most[rows, 0], best[rows, 0], scales, kind)[:, None]
        else:
            runs = _runs(values[rows], scales.group)
            best[rows] = _search(runs, most[rows].ravel(), best[rows].ravel(), scales, kind).reshape(most[rows].shape)
    return best


def quantize(values: Float32, stored: Held, scales: Scales, kind: IntegerCodec) -> tuple[Int8, int]:
    """Stored integers under stored scales, and how many were clipped.

    q = clip(rint(value / scale), low, high), the division in float32, ties to even. What is half a step beyond the range is
    clipped, but not where scales are rounded to nearest: there it is what the largest value may become.
    """
    if scales.affine:
        return quantize_affine(values, stored, kind)
    q, clipped, top = np.empty(values.shape, np.int8), 0, _top(scales, kind)
    for rows in _blocks(values):
        steps = np.empty(values[rows].shape, np.float32)
        for (groups, part), (_, out) in zip(
            _grouped(values[rows], scales.group), _grouped(steps, scales.group), strict=True
        ):
            np.divide(part, stored[rows, groups, None], out=out)
        clipped += int(np.count_nonzero(steps > top)) + int(np.count_nonzero(steps < kind.low - 0.5))
        np.rint(steps, out=steps)
        q[rows] = np.clip(steps, kind.low, kind.high, out=steps)
    return q, clipped


def dequantize(q: Int8, stored: Held, scales: Scales) -> Float32:
    """q * scale, exact in float32 `[rows, cols]`."""
    if scales.affine:
        return dequantize_affine(q, stored)
    values = q.astype(np.float32)
    for groups, part in _grouped(values, scales.group):
        part *= stored[:, groups, None]
    return values


def _top(scales: Scales, kind: IntegerCodec) -> float:
    """The largest quotient that is not clipped; two units above half a step, for the roundings of scale and quotient."""
    half = np.float32(kind.high + 0.5)
    nearest = entry_codec(scales.entry).nearest
    return float(half + 2 * np.spacing(half) if nearest else np.nextafter(half, np.float32(0)))


def _blocks(values: Array) -> Iterator[slice]:
    step = max(1, ELEMENTS_AT_A_TIME // values.shape[1])
    for start in range(0, len(values), step):
        yield slice(start, start + step)


def _grouped(matrix: Array, group: int) -> Iterator[tuple[slice, Array]]:
    """Views `[rows, groups, columns of a group]`: of the whole groups, then of a last one that is not whole."""
    whole = matrix.shape[1] // group
    if whole:
        shape = (len(matrix), whole, group)
        yield slice(0, whole), matrix[:, : whole * group].reshape(shape, copy=False)
    if matrix.shape[1] % group:
        yield slice(whole, whole + 1), matrix[:, None, whole * group :]


def _runs(values: Float32, group: int) -> Float32:
    """`[rows * groups, group]`: one row for each entry, a last group filled up with 0, which adds no error."""
    missing = -values.shape[1] % group
    return np.pad(values, ((0, 0), (0, missing))).reshape(-1, group) if missing else values.reshape(-1, group)


def _scales_for(most: Float32, scales: Scales, kind: IntegerCodec) -> Float32:
    codec = entry_codec(scales.entry)
    found = _held(most.astype(np.float64) / scales.divisor, most, scales)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        clips = np.rint(most / found) > kind.high
        if clips.any() and not codec.nearest:  # only where the divisor is above `high` and the quotient exact
            found = np.where(clips, codec.held(np.nextafter(found.astype(np.float64), np.inf)), found)
        scales.encode(found)
        beyond = ~np.isfinite(np.rint(most / found) * found)
    if beyond.any():
        row, group = (int(i) for i in np.unravel_index(int(np.argmax(beyond)), beyond.shape))
        error = ScaleRefused(f"what entry {[row, group]} scales would be infinite", found=float(most[row, group]))
        error.at = (row, group)
        raise error
    return found


def _held(wanted: Float64, most: Float32, scales: Scales) -> Float32:
    codec = entry_codec(scales.entry)
    return np.where(most == 0, np.float32(scales.zero), codec.held(np.where(most == 0, 1.0, wanted)))


def _search(runs: Float32, most: Float32, first: Float32, scales: Scales, kind: IntegerCodec) -> Float32:
    """The best scale of each run.

    Runs whose clipped extreme alone costs no less than the best so far are left out: scales only become smaller from step
    to step, so they stay so.
    """
    best, least = first.copy(), _errors(runs, first, kind)
    top, bottom = (extreme.astype(np.float64) for extreme in (runs.max(axis=1), runs.min(axis=1)))
    live = np.arange(len(runs))
    for j in range(1, SEARCH_STEPS):
        tried = _held(most[live].astype(np.float64) * (1 - j / SEARCH_PARTS) / scales.divisor, most[live], scales)
        clipped = np.maximum(np.maximum(top[live] - kind.high * tried, kind.low * tried - bottom[live]), 0)
        stay = np.square(clipped) < least[live]
        if not stay.all():
            live, tried, runs = live[stay], tried[stay], runs[stay]
        error = _errors(runs, tried, kind)
        better = error < least[live]
        best[live[better]], least[live[better]] = tried[better], error[better]
    return best


def _errors(runs: Float32, scale: Float32, kind: IntegerCodec) -> Float64:
    held = runs / scale[:, None]
    np.rint(held, out=held)
    np.clip(held, kind.low, kind.high, out=held)
    held *= scale[:, None]
    apart = np.subtract(runs, held, dtype=np.float64)
    np.square(apart, out=apart)
    errors: Float64 = apart.sum(axis=1)
    return errors
