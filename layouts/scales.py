"""How the stored integers of a tensor are scaled (docs/quantization.md)."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.entry_codecs import AffineEntry, Held, entry_codec
from layouts.errors import LayoutError

Float32 = npt.NDArray[np.float32]
Raw = npt.NDArray[Any]

FULL = np.float32(16384)
"""The affine entry of a tensor's largest scale."""

DIVISORS = {"s8": (127.0, 127.5), "s4": (7.0,)}
"""What the largest magnitude is divided by, per integer codec; the first is the default."""


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
    factor : an entry is float32(scale * factor), the product in float64; one number per tensor, 1 for all entries but fp32 and
        affine. One chip's is a float32, another's the quotient of two (input over output scale)
    zero : the scale where all values are 0, a float32; likewise. Of affine entries both are float64; the factor is 16384 over the
        tensor's largest scale, the entry of scale 1 / factor is 1, and no scale is below that
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
            number = float(self.factor) if name == "factor" else self.zero if self.affine else float32_of(self.zero)
            if not (isfinite(number) and number > 0):
                raise LayoutError(f"{name} of the scale rule out of range", expected="above 0", found=number)
            if number != 1 and not kind.nearest:
                raise LayoutError(f"{name} of a scale entry of {self.entry}", expected=1.0, found=number)
            object.__setattr__(self, name, number)

    @property
    def affine(self) -> bool:
        """Whether rows have zero points: value = (q - zero point) * scale, and both stand in the row's entries."""
        return self.entry == AffineEntry.name

    def groups(self, cols: int) -> int:
        """Entries of a row of `cols` elements; the two of an affine row are its scale and its zero point."""
        return 2 if self.affine else -(-cols // self.group)

    def encode(self, scales: Held) -> Raw:
        """Entries of scales, same shape. Raises ScaleRefused as `EntryCodec.encode` does."""
        if self.affine:
            steps = scales[:, :1].astype(np.float32) * (FULL / np.float32(float(FULL) / self.factor))
            return entry_codec(self.entry).encode(np.hstack([steps, scales[:, 1:]]))
        return entry_codec(self.entry).encode(self._times_factor(scales))

    def decode(self, raw: Raw) -> Held:
        """The scales of entries, same shape; where a factor is rounded away, the nearest that has this very entry."""
        entries = entry_codec(self.entry).decode(raw)
        if self.affine:
            return entries / (self.factor, 1.0)
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
