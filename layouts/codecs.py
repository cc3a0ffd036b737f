"""Codecs: how a float32 becomes the integer that an engine stores. One small class each, registered by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from layouts.errors import LayoutError

Float32 = npt.NDArray[np.float32]
Raw = npt.NDArray[Any]
"""Unsigned integers, uint8, uint16 or uint32 as the codec's `raw_dtype` says."""


class Codec(ABC):
    """A stored number format.

    `width` is the number of bits of the stored integer, over all planes; `raw_dtype` the NumPy type that holds it.
    """

    name: ClassVar[str]
    width: ClassVar[int]
    raw_dtype: ClassVar[type[np.unsignedinteger[Any]]]

    def encode(self, values: Float32) -> Raw:
        """Stored integers of float32 `values`, same shape.

        Raises
        ------
        LayoutError : not float32, a NaN, or a finite value that the format can only hold as infinity.
        """
        if values.dtype != np.float32:
            raise LayoutError("codec takes float32", expected="float32", found=values.dtype)
        extremes = np.array([values.min(initial=0), values.max(initial=0)], np.float32)
        if np.isnan(extremes).any():
            raise LayoutError(f"element {_first(np.isnan(values))} is NaN", expected="a number")
        if not np.isfinite(self.decode(self._encode(extremes))).all():
            self._check_overflow(values)
        return self._encode(values)

    @abstractmethod
    def decode(self, raw: Raw) -> Float32:
        """float32 values of stored integers, exact."""

    @abstractmethod
    def _encode(self, values: Float32) -> Raw: ...

    def _check_overflow(self, values: Float32) -> None:
        lost = np.isfinite(values) & ~np.isfinite(self.decode(self._encode(values)))
        if lost.any():
            raise LayoutError(f"element {_first(lost)} does not fit {self.name}", found=float(values[lost][0]))


CODECS: dict[str, Codec] = {}


def register(kind: type[Codec]) -> type[Codec]:
    """Class decorator: make a codec known under its name."""
    CODECS[kind.name] = kind()
    return kind


def codec(name: str) -> Codec:
    """The codec of that name. Raises LayoutError for an unknown one."""
    if name not in CODECS:
        raise LayoutError("unknown codec", expected=" | ".join(CODECS), found=name)
    return CODECS[name]


@register
class Bf16(Codec):
    """bfloat16, round to nearest even."""

    name = "bf16"
    width = 16
    raw_dtype = np.uint16

    def _encode(self, values: Float32) -> Raw:
        return values.astype(ml_dtypes.bfloat16).view(np.uint16)

    def decode(self, raw: Raw) -> Float32:
        bits = raw.astype(np.uint32)
        np.left_shift(bits, 16, out=bits)
        return bits.view(np.float32)


@register
class Bf16Truncated(Bf16):
    """bfloat16 by dropping the low 16 bits: round toward zero."""

    name = "bf16_truncated"

    def _encode(self, values: Float32) -> Raw:
        return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16).reshape(values.shape)


@register
class Fp16(Codec):
    """IEEE half precision, round to nearest even."""

    name = "fp16"
    width = 16
    raw_dtype = np.uint16

    def _encode(self, values: Float32) -> Raw:
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16)

    def decode(self, raw: Raw) -> Float32:
        return raw.view(np.float16).astype(np.float32)


@register
class Fp32(Codec):
    """IEEE single precision, the float32 itself."""

    name = "fp32"
    width = 32
    raw_dtype = np.uint32

    def _encode(self, values: Float32) -> Raw:
        return np.array(values, np.float32, order="C").view(np.uint32)

    def decode(self, raw: Raw) -> Float32:
        return np.array(raw, np.uint32, order="C").view(np.float32)


def _first(mask: npt.NDArray[np.bool_]) -> list[int]:
    return [int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape)]
