"""Float32 to stored integers and scales, and back: the rules of docs/quantization.md, exact on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from layouts.errors import LayoutError
from layouts.integers import Int8, IntegerCodec
from layouts.scales import EntryCodec, Float32, Scales, entry_codec

SEARCH_STEPS = 32
SEARCH_PARTS = 64

Float64 = npt.NDArray[np.float64]


def largest(values: Float32, scales: Scales) -> Float32:
    """The largest magnitude that each entry answers for, float32 `[rows, groups]`; equal along a row when shared."""
    _check_finite(values)
    groups = scales.groups(values.shape[1])
    starts = np.arange(groups) * scales.group
    most: Float32 = np.maximum.reduceat(np.abs(values), starts, axis=1)
    if scales.shared:
        most = np.repeat(most.max(axis=1, keepdims=True), groups, axis=1)
    return most


def refit_scales(values: Float32, scales: Scales, kind: IntegerCodec) -> Float32:
    """The least stored scale under which nothing clips, float32 `[rows, groups]`; 1 where all values are 0.

    Raises
    ------
    LayoutError : a value that is not finite, a scale that the entry cannot hold
    """
    return _scales_for(largest(values, scales), scales, kind)


def search_scales(values: Float32, scales: Scales, kind: IntegerCodec) -> Float32:
    """Of `refit_scales` and scales for 1 - j/64 of the largest magnitude, j = 0 to 31, the one of least squared error.

    The error of an entry is the float64 sum of (value - q * scale)^2 over what it answers for; the lowest j among equals.
    """
    most = largest(values, scales)
    best = _scales_for(most, scales, kind)
    least = _errors(values, best, scales, kind)
    codec = entry_codec(scales.entry)
    for j in range(1, SEARCH_STEPS):
        tried = _held(most.astype(np.float64) * (1 - j / SEARCH_PARTS) / scales.divisor, most, codec)
        error = _errors(values, tried, scales, kind)
        better = error < least
        best, least = np.where(better, tried, best), np.where(better, error, least)
    return best


def quantize(values: Float32, stored: Float32, scales: Scales, kind: IntegerCodec) -> tuple[Int8, int]:
    """Stored integers under stored scales, and how many were clipped.

    q = clip(rint(value / scale), low, high), the division in float32, ties to even.
    """
    steps = np.rint(values / spread(stored, scales, values.shape[1]))
    clipped = int(np.count_nonzero((steps > kind.high) | (steps < kind.low)))
    return np.clip(steps, kind.low, kind.high).astype(np.int8), clipped


def dequantize(q: Int8, stored: Float32, scales: Scales) -> Float32:
    """q * scale, exact in float32 `[rows, cols]`."""
    values: Float32 = q.astype(np.float32) * spread(stored, scales, q.shape[1])
    return values


def spread(stored: Float32, scales: Scales, cols: int) -> Float32:
    """Scales `[rows, groups]` for every column, `[rows, cols]`."""
    if stored.shape[1] == 1:
        return stored
    wide: Float32 = np.repeat(stored, scales.group, axis=1)[:, :cols]
    return wide


def _scales_for(most: Float32, scales: Scales, kind: IntegerCodec) -> Float32:
    codec = entry_codec(scales.entry)
    found = _held(most.astype(np.float64) / scales.divisor, most, codec)
    with np.errstate(over="ignore"):
        clips = np.rint(most / found) > kind.high
    if clips.any():  # only where the divisor is above `high` and the quotient exact
        found = np.where(clips, codec.above(np.nextafter(found.astype(np.float64), np.inf)), found)
    codec.encode(found)
    return found


def _held(wanted: Float64, most: Float32, codec: EntryCodec) -> Float32:
    return np.where(most == 0, np.float32(1), codec.above(np.where(most == 0, 1.0, wanted)))


def _errors(values: Float32, stored: Float32, scales: Scales, kind: IntegerCodec) -> Float64:
    q, _ = quantize(values, stored, scales, kind)
    squares = np.square(values.astype(np.float64) - dequantize(q, stored, scales))
    errors: Float64 = np.add.reduceat(squares, np.arange(stored.shape[1]) * scales.group, axis=1)
    if scales.shared:
        errors = np.repeat(errors.sum(axis=1, keepdims=True), stored.shape[1], axis=1)
    return errors


def _check_finite(values: Float32) -> None:
    if values.dtype != np.float32:
        raise LayoutError("quantization takes float32", expected="float32", found=values.dtype)
    finite = np.isfinite(values)
    if not finite.all():
        at = [int(i) for i in np.unravel_index(int(np.argmin(finite)), finite.shape)]
        raise LayoutError(f"element {at} is not finite", expected="a number")
