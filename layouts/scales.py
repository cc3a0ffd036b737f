"""Scale entries: what stands beside stored integers, and how a scale becomes one (docs/quantization.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from layouts.errors import LayoutError, ScaleRefused

Float32 = npt.NDArray[np.float32]
Raw = npt.NDArray[Any]

DIVISORS = {"s8": (127.0, 127.5), "s4": (7.0,)}
"""What the largest magnitude is divided by, per integer codec; the first is the default."""


class EntryCodec(ABC):
    """How a scale is stored.

    `width` is bits of an entry. `nearest`: a scale is rounded to nearest, so that the largest value may be half a step beyond
    the range; otherwise the scale is the next one above, under which nothing clips.
    """

    name: ClassVar[str]
    width: ClassVar[int]
    raw_dtype: ClassVar[type[np.unsignedinteger[Any]]]
    nearest: ClassVar[bool] = False

    def encode(self, scales: Float32) -> Raw:
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
    def decode(self, raw: Raw) -> Float32:
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


ENTRIES: dict[str, EntryCodec] = {kind.name: kind() for kind in (ReciprocalEntry, Bf16Entry, Fp16Entry, Fp32Entry)}


def entry_codec(name: str) -> EntryCodec:
    """Raises LayoutError for an unknown name."""
    if name not in ENTRIES:
        raise LayoutError("unknown scale entry", expected=" | ".join(ENTRIES), found=name)
    return ENTRIES[name]


def float32_of(number: float) -> float:
    """The float32 nearest to a number."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


@dataclass(frozen=True)
class Scales:
    """How the stored integers of a tensor become numbers: value = q * scale.

    entry : codec of an entry
    group : columns that share an entry; a row has ceil(cols / group) of them
    divisor : what the largest magnitude is divided by to give the scale
    shared : the largest magnitude is that of the whole row, so that all entries of a row are equal and no build can tell
        them apart (one class); otherwise that of the group
    factor : an entry is float32(scale * factor), the product in float64; one number per tensor, 1 for all entries but fp32. One
        chip's is a float32, another's the quotient of two (input over output scale)
    zero : the scale where all values are 0, a float32; likewise
    """

    entry: str
    group: int
    divisor: float
    shared: bool
    factor: float = 1.0
    zero: float = 1.0

    def __post_init__(self) -> None:
        kind = entry_codec(self.entry)
        if not 1 <= self.group <= 1 << 31:
            raise LayoutError("columns of a scale entry out of range", expected="1 to 2**31", found=self.group)
        if not 1 <= self.divisor <= 255:
            raise LayoutError("divisor of the scale rule out of range", expected="1 to 255", found=self.divisor)
        object.__setattr__(self, "divisor", float(self.divisor))
        for name in ("factor", "zero"):
            number = float(self.factor) if name == "factor" else float32_of(self.zero)
            if not (isfinite(number) and number > 0):
                raise LayoutError(f"{name} of the scale rule out of range", expected="above 0", found=number)
            if number != 1 and not kind.nearest:
                raise LayoutError(f"{name} of a scale entry of {self.entry}", expected=1.0, found=number)
            object.__setattr__(self, name, number)

    def groups(self, cols: int) -> int:
        """Entries of a row of `cols` elements."""
        return -(-cols // self.group)

    def encode(self, scales: Float32) -> Raw:
        """Entries of scales, same shape. Raises ScaleRefused as `EntryCodec.encode` does."""
        return entry_codec(self.entry).encode(self._times_factor(scales))

    def decode(self, raw: Raw) -> Float32:
        """The scales of entries, same shape; where a factor is rounded away, the nearest that has this very entry."""
        entries = entry_codec(self.entry).decode(raw)
        if self.factor == 1:
            return entries
        with np.errstate(over="ignore", invalid="ignore"):
            nearest = (entries / np.float64(self.factor)).astype(np.float32)
            found = nearest
            for toward in (np.float32(0), np.float32(np.inf)):
                other = np.nextafter(nearest, toward)
                better = (self._times_factor(found) != entries) & (self._times_factor(other) == entries)
                found = np.where(better, other, found)
        scales: Float32 = found
        return scales

    def _times_factor(self, scales: Float32) -> Float32:
        if self.factor == 1:
            return scales
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return (scales * np.float64(self.factor)).astype(np.float32)
