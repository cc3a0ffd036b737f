"""Scale entries: what stands beside stored integers, and how a scale becomes one (docs/quantization.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from layouts.errors import LayoutError, ScaleRefused

Float32 = npt.NDArray[np.float32]
Held = npt.NDArray[Any]
"""Scales: float32 `[rows, groups]`; of affine entries float64 `[rows, 2]`."""
Raw = npt.NDArray[Any]


class EntryCodec(ABC):
    """How a scale is stored.

    `width` is bits of an entry. `nearest`: a scale is rounded to nearest, so that the largest value may be half a step beyond
    the range; otherwise the scale is the next one above, under which nothing clips.
    """

    name: ClassVar[str]
    width: ClassVar[int]
    raw_dtype: ClassVar[type[np.unsignedinteger[Any]]]
    nearest: ClassVar[bool] = False

    def encode(self, scales: Held) -> Raw:
        """Entries of scales that the format holds exactly (as `held` gives them), same shape.

        Raises
        ------
        ScaleRefused : a scale that is not positive and finite, or whose entry would have a half that is 0 or infinite
        """
        raw = self._encode(scales)
        bad = ~(np.isfinite(scales) & (scales > 0) & self.usable(raw))
        if bad.any():
            at = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
            error = ScaleRefused(f"scale entry {list(at)} would be 0 or infinite", found=float(scales[at]))
            error.at = (at[0], at[-1])
            raise error
        return raw

    @abstractmethod
    def decode(self, raw: Raw) -> Held:
        """The scales that stored integers are multiplied with."""

    @abstractmethod
    def held(self, scales: npt.NDArray[np.float64]) -> Float32:
        """The scale for each of `scales` (positive, float64), least not below or `nearest`; may be infinite, and 0 if nearest."""

    @abstractmethod
    def _encode(self, scales: Float32) -> Raw: ...

    def usable(self, raw: Raw) -> npt.NDArray[np.bool_]:
        """Which entries are positive and finite, both halves where there are two."""
        decoded = self.decode(raw)
        usable: npt.NDArray[np.bool_] = np.isfinite(decoded) & (decoded > 0)
        return usable


class _Half(EntryCodec):
    """One 16-bit float."""

    width = 16
    raw_dtype: ClassVar[type[np.unsignedinteger[Any]]] = np.uint16
    dtype: ClassVar[Any]

    def _encode(self, scales: Float32) -> Raw:
        with np.errstate(over="ignore"):
            return scales.astype(self.dtype).view(np.uint16)

    def decode(self, raw: Raw) -> Float32:
        return self._float(raw)

    def held(self, scales: npt.NDArray[np.float64]) -> Float32:
        with np.errstate(over="ignore"):
            bits = scales.astype(np.float32).astype(self.dtype).view(np.uint16)
        low = bits.view(self.dtype).astype(np.float64) < scales
        return self._float((bits + low).astype(np.uint16))

    def _float(self, bits: Raw) -> Float32:
        scales: Float32 = bits.view(self.dtype).astype(np.float32)
        return scales


class Bf16Entry(_Half):
    """The scale as bf16."""

    name = "bf16"
    dtype = ml_dtypes.bfloat16


class Fp16Entry(_Half):
    """The scale as IEEE half precision."""

    name = "fp16"
    dtype = np.float16


class ReciprocalEntry(Bf16Entry):
    """Four bytes: low half A = bf16(1 / scale), nearest even; high half B = the scale as bf16."""

    name = "reciprocal"
    width = 32
    raw_dtype = np.uint32

    def _encode(self, scales: Float32) -> Raw:
        with np.errstate(over="ignore", divide="ignore"):
            reciprocal = (np.float32(1) / scales).astype(ml_dtypes.bfloat16).view(np.uint16)
        scale = scales.astype(ml_dtypes.bfloat16).view(np.uint16)
        return scale.astype(np.uint32) << np.uint32(16) | reciprocal

    def decode(self, raw: Raw) -> Float32:
        return np.ascontiguousarray(raw & np.uint32(0xFFFF0000)).view(np.float32)

    def usable(self, raw: Raw) -> npt.NDArray[np.bool_]:
        reciprocal = np.ascontiguousarray(raw << np.uint32(16)).view(np.float32)
        usable: npt.NDArray[np.bool_] = super().usable(raw) & np.isfinite(reciprocal) & (reciprocal > 0)
        return usable


class Fp32Entry(EntryCodec):
    """A float32: the scale times the tensor's factor (`Scales.factor`), both rounded to nearest."""

    name = "fp32"
    width = 32
    raw_dtype = np.uint32
    nearest = True

    def _encode(self, scales: Float32) -> Raw:
        return np.array(scales, np.float32, order="C").view(np.uint32)

    def decode(self, raw: Raw) -> Float32:
        return np.array(raw, np.uint32, order="C").view(np.float32)

    def held(self, scales: npt.NDArray[np.float64]) -> Float32:
        with np.errstate(over="ignore"):
            return scales.astype(np.float32)


class AffineEntry(EntryCodec):
    """Two 16-bit words a row: the scale times the tensor's factor, rounded to an integer, and minus the row's zero point.

    What stands for scales is float64 `[rows, 2]`: scale, zero point (layouts/affine.py). Measured on rknn-toolkit2 2.5.0.
    """

    name = "affine"
    width = 16
    raw_dtype = np.uint16
    nearest = True

    def encode(self, scales: Held) -> Raw:
        with np.errstate(invalid="ignore"):
            steps = np.rint(scales[:, 0])
        bad = ~((steps > 0) & (steps < 1 << 15))
        if bad.any():
            row = int(np.argmax(bad))
            error = ScaleRefused(f"scale entry {[row, 0]} would be 0 or above 32767", found=float(steps[row]))
            error.at = (row, 0)
            raise error
        words: Raw = np.stack([steps, -scales[:, 1]], axis=1).astype(np.int16).view(np.uint16)
        return words

    def decode(self, raw: Raw) -> Held:
        words = np.ascontiguousarray(raw).view(np.int16).astype(np.float64)
        return words * (1.0, -1.0)

    def held(self, scales: npt.NDArray[np.float64]) -> Float32:
        return scales.astype(np.float32)

    def _encode(self, scales: Held) -> Raw:
        return self.encode(scales)

    def usable(self, raw: Raw) -> npt.NDArray[np.bool_]:
        words = np.ascontiguousarray(raw).view(np.int16)
        return np.stack([words[:, 0] > 0, (words[:, 1] >= -127) & (words[:, 1] <= 128)], axis=1)


_KINDS = (ReciprocalEntry, Bf16Entry, Fp16Entry, Fp32Entry, AffineEntry)
ENTRIES: dict[str, EntryCodec] = {kind.name: kind() for kind in _KINDS}


def entry_codec(name: str) -> EntryCodec:
    """Raises LayoutError for an unknown name."""
    if name not in ENTRIES:
        raise LayoutError("unknown scale entry", expected=" | ".join(ENTRIES), found=name)
    return ENTRIES[name]
