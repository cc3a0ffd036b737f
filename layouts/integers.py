"""Integer codecs: small signed integers that a scale turns into numbers (docs/quantization.md)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from layouts.errors import LayoutError

Int8 = npt.NDArray[np.int8]
Raw = npt.NDArray[Any]


class IntegerCodec:
    """A signed integer of `width` bits, `low` to `high`. Raw is its two's complement in uint8; planes split and bias it."""

    name: ClassVar[str]
    width: ClassVar[int]
    low: ClassVar[int]
    high: ClassVar[int]
    raw_dtype: ClassVar[type[np.unsignedinteger[Any]]] = np.uint8

    def to_raw(self, q: Int8) -> Raw:
        """Two's complement of `q`, uint8, same shape."""
        return q.view(np.uint8) & np.uint8((1 << self.width) - 1)

    def from_raw(self, raw: Raw) -> Int8:
        """The signed integers of `to_raw`, int8."""
        shift = np.int8(8 - self.width)
        signed: Int8 = (raw << np.uint8(8 - self.width)).view(np.int8) >> shift
        return signed


class S8(IntegerCodec):
    """8 bits: -128 to 127."""

    name = "s8"
    width = 8
    low, high = -128, 127


class S4(IntegerCodec):
    """4 bits: -8 to 7."""

    name = "s4"
    width = 4
    low, high = -8, 7


INTEGERS: dict[str, IntegerCodec] = {kind.name: kind() for kind in (S8, S4)}


def integer_codec(name: str) -> IntegerCodec:
    """Raises LayoutError for an unknown name."""
    if name not in INTEGERS:
        raise LayoutError("unknown integer codec", expected=" | ".join(INTEGERS), found=name)
    return INTEGERS[name]
