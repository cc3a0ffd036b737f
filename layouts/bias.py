"""Bias entries: what stands beside the integers of a row for its bias and its input's zero point (docs/quantization.md).

    n = rint(float32(bias / float32(scale * factor))) - zero_point * sum of the row's stored integers

`int32` holds n, `fp32` the float32 nearest to n times the row's scale entry. Measured on Pulsar2 7.0 engines. `affine` is int32
beside affine scales, whose zero point is taken from the integers first; scale and factor are float64. Measured on
rknn-toolkit2 2.5.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.entry_codecs import Held
from layouts.errors import BiasRefused, LayoutError
from layouts.names import check_name
from layouts.scales import float32_of

BIAS_ENTRIES = ("fp32", "int32", "affine")
ENTRY_WIDTH = 32

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Integers = npt.NDArray[np.signedinteger[Any]]
Raw = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Bias:
    """How a bias is stored beside integers.

    tensor : name of the checkpoint's bias, "" where there is none: 0 then
    entry : fp32, int32 or affine
    factor : of the row's scale, one number per tensor, a float32; of `affine` a float64
    zero_point : the integer that stands for 0 in the input
    """

    tensor: str
    entry: str
    factor: float
    zero_point: int

    def __post_init__(self) -> None:
        if self.tensor:
            check_name(self.tensor)
        if self.entry not in BIAS_ENTRIES:
            raise LayoutError("unknown bias entry", expected=" | ".join(BIAS_ENTRIES), found=self.entry)
        if self.entry != "affine":
            object.__setattr__(self, "factor", float32_of(self.factor))
        if not (isfinite(self.factor) and self.factor > 0):
            raise LayoutError("factor of the bias out of range", expected="above 0", found=self.factor)
        if not -(1 << 31) <= self.zero_point < 1 << 31:
            raise LayoutError("zero point out of range", expected="32 bits", found=self.zero_point)


def bias_entries(rule: Bias, q: Integers, scales: Held, entries: Held, bias: Float32) -> Raw:
    """Bias entries of rows.

    Parameters
    ----------
    q : stored integers `[rows, cols]`, less the row's zero point where there is one, 0 where an element is absent
    scales, entries : scale of each row and the number that its scale entry holds, `[rows]`
    bias : float32 `[rows]`

    Returns
    -------
    uint32 `[rows, 1]`

    Raises
    ------
    BiasRefused : a bias that is not finite, or an entry that its format cannot hold; names the row
    """
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(bias / (scales * rule.factor).astype(np.float32)).astype(np.float64)
    total = steps + 0.0 - float(rule.zero_point) * q.sum(axis=1, dtype=np.int64)  # an integer is never -0
    if rule.entry != "fp32":
        _check(np.abs(total + 0.5) < 2.0**31, total)
        return _column(total.astype(np.int32))
    with np.errstate(over="ignore", invalid="ignore"):
        stored = (total * entries).astype(np.float32)
    _check(np.isfinite(stored), total)
    return _column(stored)


def _column(values: npt.NDArray[Any]) -> Raw:
    column: Raw = values.view(np.uint32)[:, None]
    return column


def _check(good: npt.NDArray[np.bool_], total: Float64) -> None:
    if not good.all():
        row = int(np.argmin(good))
        error = BiasRefused("bias entry does not fit", where=f"row {row}", found=float(total[row]))
        error.at = (row, 0)
        raise error
