"""Integers whose rows have a zero point: the range of a row, and 0, is spread over all 256 integers.

Measured on rknn-toolkit2 2.5.0, exact. With low and high the least and the largest of a row and 0: scale = (high - low) / 255 in
float64, zero point = rint(-128 - low / scale). A row of zeros has zero point 0 and the smallest scale of the other rows. Then
scales below 1/16384 of the tensor's largest become that. q = clip(rint(float32(value / float32(scale)) + zero point), -128, 127),
the sum float32, ties to even.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32
from layouts.entry_codecs import Held
from layouts.errors import LayoutError
from layouts.integers import Int8, IntegerCodec

STEPS = 255.0


def affine_scales(values: Float32, kind: IntegerCodec, zero: float, least: float) -> npt.NDArray[np.float64]:
    """Scale and zero point of each row, float64 `[rows, 2]`: `zero` and 0 in rows of zeros, and no scale below `least`.

    Raises LayoutError for other types, NaN and infinities.
    """
    if values.dtype != np.float32:
        raise LayoutError("quantization takes float32", expected="float32", found=values.dtype)
    low, high = np.minimum(values.min(axis=1), 0), np.maximum(values.max(axis=1), 0)
    if not np.isfinite([low, high]).all():
        at = [int(i) for i in np.unravel_index(int(np.argmin(np.isfinite(values))), values.shape)]
        raise LayoutError(f"element {at} is not finite", expected="a number")
    span = (high.astype(np.float64) - low) / STEPS
    scale = np.where(span > 0, span, zero)
    point = np.where(span > 0, np.rint(kind.low - low / scale), 0.0)
    return np.stack([np.maximum(scale, least), point], axis=1)


def quantize_affine(values: Float32, held: Held, kind: IntegerCodec) -> tuple[Int8, int]:
    """Stored integers under scales and zero points `[rows, 2]`, and how many are a step or more beyond the range."""
    scale, point = (held[:, index : index + 1].astype(np.float32) for index in (0, 1))
    steps = values / scale
    steps += point
    np.rint(steps, out=steps)
    clipped = int(np.count_nonzero(steps > kind.high + 1)) + int(np.count_nonzero(steps < kind.low - 1))
    return np.clip(steps, kind.low, kind.high, out=steps).astype(np.int8), clipped


def dequantize_affine(q: Int8, held: Held) -> Float32:
    """(q - zero point) * scale, rounded to float32 `[rows, cols]`."""
    values: Float32 = ((q - held[:, 1:]) * held[:, :1]).astype(np.float32)
    return values
