"""Integer weights as docs/quantization.md defines them, written a second time for the control.

Scales are found among bit patterns here and not through conversions, so that a fault of `layouts/` is not shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

INTEGERS = {"s8": (-128, 127, 256), "s4": (-8, 7, 128)}  # lowest, highest, columns of an entry
BLOCK_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Quantization:
    """What becomes of weights in an engine set: the flags of its templates that matter, and how its scales were chosen."""

    weight_type: str = "bf16"
    post_weight_type: str = ""
    rounding: str = "nearest"
    scale_rule: str = "row/127"
    scale_type: str = "bf16"
    fold_norms: bool = False
    scales: str = "refit"

    @classmethod
    def of(cls, options: Mapping[str, Any], scales: str) -> Quantization:
        """From a manifest's `template.options` and `scales`."""
        known = {field.name for field in fields(cls)} & set(options)
        return cls(**{name: options[name] for name in known}, scales=scales)

    @property
    def head_type(self) -> str:
        return self.post_weight_type or ("bf16" if self.weight_type in INTEGERS else self.weight_type)

    def stored(self, values: Float32, kind: str) -> Array:
        """A float tensor as an engine holds it: bf16, or float32 where the engine is."""
        if kind == "fp32":
            return values
        if self.rounding == "truncate":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
        return values.astype(ml_dtypes.bfloat16)

    def quantized(self, values: Float32, kind: str, base: Float32 | None = None) -> Float32:
        """A matrix `[rows, cols]` as the numbers that its integers stand for.

        Parameters
        ----------
        kind : `s8` or `s4`
        base : what the engine was compiled from, where its own scales are kept, and its integers within one step
        """
        out = np.empty_like(values)
        step = max(1, BLOCK_ELEMENTS // values.shape[1])
        for start in range(0, len(values), step):
            rows = slice(start, start + step)
            if base is None:
                out[rows] = self._rows(values[rows], kind)
            else:
                out[rows] = self._kept_rows(values[rows], base[rows], kind)
        return out

    def _rows(self, values: Float32, kind: str) -> Float32:
        grouped = self._grouped(values, kind)
        scales = self._searched(grouped, kind) if self.scales == "search" else self._unclipped(grouped, kind)
        return _numbers(_steps(grouped, scales, kind), scales, values.shape)

    def _kept_rows(self, values: Float32, base: Float32, kind: str) -> Float32:
        compiled = self._grouped(base, kind)
        scales = self._unclipped(compiled, kind)
        old, new = _steps(compiled, scales, kind), _steps(self._grouped(values, kind), scales, kind)
        return _numbers(np.where(np.abs(old - new) <= 1, old, new), scales, values.shape)

    def _grouped(self, values: Float32, kind: str) -> Float32:
        """`[rows, groups, columns of a group]`, zeros behind the last column."""
        rows, cols = values.shape
        group = cols if self._by_row(kind) else INTEGERS[kind][2]
        grouped = np.zeros((rows, -(-cols // group), group), np.float32)
        grouped.reshape(rows, -1)[:, :cols] = values
        return grouped

    def _by_row(self, kind: str) -> bool:
        return kind == "s8" and self.scale_rule.startswith("row/")

    def _divisor(self, kind: str) -> float:
        return float(self.scale_rule.partition("/")[2]) if kind == "s8" else 7.0

    def _unclipped(self, grouped: Float32, kind: str) -> Float32:
        """Scales `[rows, groups, 1]`: the least under which nothing clips."""
        most = np.abs(grouped).max(axis=2, keepdims=True)
        scales = self._at_least(most.astype(np.float64) / self._divisor(kind), kind)
        clips = np.rint(most / scales) > INTEGERS[kind][1]
        above = self._at_least(np.nextafter(scales.astype(np.float64), np.inf), kind)
        return np.where(clips, above, scales)

    def _searched(self, grouped: Float32, kind: str) -> Float32:
        most = np.abs(grouped).max(axis=2, keepdims=True).astype(np.float64)
        best = self._unclipped(grouped, kind)
        least = _squared_error(grouped, best, kind)
        for j in range(1, 32):
            tried = self._at_least(most * (1 - j / 64) / self._divisor(kind), kind)
            error = _squared_error(grouped, tried, kind)
            best = np.where(error < least, tried, best)
            least = np.minimum(error, least)
        return best

    def _at_least(self, wanted: Float64, kind: str) -> Float32:
        """The least number of the entry's format that is not below `wanted`; 1 for 0."""
        single = wanted.astype(np.float32)
        single = np.where(single < wanted, np.nextafter(single, np.float32(np.inf)), single)
        if kind == "s4" and self.scale_type == "fp16":
            half = single.astype(np.float16)
            held = np.where(half < single, np.nextafter(half, np.float16(np.inf)), half).astype(np.float32)
        else:
            held = ((single.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(wanted == 0, np.float32(1), held)


def _steps(grouped: Float32, scales: Float32, kind: str) -> Float32:
    low, high, _ = INTEGERS[kind]
    # an integer has no negative zero
    steps: Float32 = np.clip(np.rint(grouped / scales), low, high) + np.float32(0)
    return steps


def _numbers(steps: Float32, scales: Float32, shape: tuple[int, ...]) -> Float32:
    numbers: Float32 = (steps * scales).reshape(shape[0], -1)[:, : shape[1]]
    return numbers


def _squared_error(grouped: Float32, scales: Float32, kind: str) -> Float64:
    off = grouped.astype(np.float64) - _steps(grouped, scales, kind) * scales
    error: Float64 = np.square(off).sum(axis=2, keepdims=True)
    return error
