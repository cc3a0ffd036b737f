"""Bias entries beside scale entries: which bias, at what distance, and the two constants that link them to the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layouts.anchors.factors import simplest
from layouts.anchors.scan import Bytes
from layouts.bias import BIAS_ENTRIES, Bias, bias_entries
from layouts.codecs import Float32
from layouts.digits import Int64
from layouts.errors import LayoutError
from layouts.integers import Int8

Float64 = npt.NDArray[np.float64]

NEAR_BYTES = 1 << 16
SAMPLED_ROWS = 24
AT_A_TIME = 1 << 15
LEAST_STEPS = 32.0
WORD_ERROR = 3e-7
ULPS = 256


@dataclass(frozen=True)
class Rows:
    """What is known of the rows of placed integers: bit address of the scale entry, its value, the scale, the integers stored.

    factor, span : of the scale entries, and the smallest and the largest number that would give the same
    """

    at: Int64
    entries: Float32
    scales: Float32
    q: Int8
    factor: float
    span: tuple[float, float]

    def part(self, start: int, stop: int) -> Rows:
        """Some of the rows."""
        own = slice(start, stop)
        return Rows(self.at[own], self.entries[own], self.scales[own], self.q[own], self.factor, self.span)


@dataclass(frozen=True)
class FoundBias:
    """How the bias is stored, how many bytes behind the scale entry of its row an entry stands, and the scale entries' factor."""

    bias: Bias
    behind: int
    factor: float


def find_bias(blob: Bytes, rows: Rows, vectors: Mapping[str, Float32]) -> FoundBias | None:
    """Look at every distance, near ones first.

    Parameters
    ----------
    vectors : checkpoint tensors that may be the bias, one value a row
    """
    if len(rows.at) < 4:
        return None
    for behind, kind, name, zero in _candidates(blob, rows, vectors):
        vector = vectors.get(name)
        stored = _words(blob, rows.at // 8 + behind)
        bias = _exact(rows, kind, name, zero, vector, stored)
        if bias is not None:
            return FoundBias(bias, behind, _quotient(bias.factor, rows.span) or rows.factor)
    return None


def _candidates(blob: Bytes, rows: Rows, vectors: Mapping[str, Float32]) -> Iterator[tuple[int, str, str, int]]:
    """Distances at which the words of some rows are a sum of bias and row sums: distance, entry, bias, zero point."""
    picked = np.unique(np.linspace(0, len(rows.at) - 1, min(len(rows.at), SAMPLED_ROWS)).astype(np.int64))
    at = rows.at[picked] // 8
    low, high = -int(at.min()), blob.size - 4 - int(at.max())
    near = [(max(low, -NEAR_BYTES), min(high, NEAR_BYTES)), (low, high)]
    sums = rows.q[picked].sum(axis=1, dtype=np.int64).astype(np.float64)
    for first, last in near:
        first += -first % 4
        for start in range(first, last + 1, 4 * AT_A_TIME):
            behind = np.arange(start, min(start + 4 * AT_A_TIME, last + 1), 4)
            words = _words(blob, at[:, None] + behind)
            for name in (*vectors, ""):
                bias = vectors[name][picked].astype(np.float64) if name else None
                for kind in BIAS_ENTRIES:
                    good, zero = _explained(words, kind, rows, picked, bias, sums)
                    for index in np.argsort(np.abs(behind[good]), kind="stable"):
                        yield int(behind[good][index]), kind, name, int(zero[good][index])


def _explained(
    words: npt.NDArray[np.uint32], kind: str, rows: Rows, picked: Int64, bias: Float64 | None, sums: Float64
) -> tuple[Int64, Float64]:
    """Columns of words that bias and row sums explain to half a step, and the zero point that each speaks of."""
    unit = (rows.scales if kind == "int32" else rows.entries)[picked].astype(np.float64)
    with np.errstate(all="ignore"):
        values = words.view(np.int32) * unit[:, None] if kind == "int32" else words.view(np.float32).astype(np.float64)
    usable = np.isfinite(values).all(axis=0) & (np.abs(values).max(axis=0, initial=0) < 1e30)
    values = np.where(usable, values, 0.0)
    parts = [part for part in (bias, sums * unit) if part is not None and part.any()]
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0)
    design = np.stack(parts, axis=1) / unit[:, None]
    steps = values / unit[:, None]
    solved = np.linalg.lstsq(design, steps, rcond=None)[0]
    rest = np.abs(design @ solved - steps)
    good = usable & (rest <= 0.75 + WORD_ERROR * np.abs(steps)).all(axis=0)
    good &= np.abs(steps).max(axis=0) > LEAST_STEPS
    zero = np.rint(-solved[-1]) if sums.any() else np.zeros(len(good))
    return np.flatnonzero(good), zero


def _words(blob: Bytes, at: Int64) -> npt.NDArray[np.uint32]:
    inside = (at >= 0) & (at + 4 <= blob.size)
    safe = np.where(inside, at, 0)
    words = np.zeros(at.shape, np.uint32)
    for byte in range(4):
        words |= blob[safe + byte].astype(np.uint32) << np.uint32(8 * byte)
    return np.where(inside, words, np.uint32(0))


def _exact(
    rows: Rows, kind: str, name: str, zero: int, vector: Float32 | None, stored: npt.NDArray[np.uint32]
) -> Bias | None:
    """The constants under which every entry is what the formula gives, bit for bit."""
    values = np.zeros(len(stored), np.float32) if vector is None else vector
    fitting = []
    for factor in _factors(rows, kind, zero, vector, stored):
        bias = Bias(name, kind, float(factor), zero)
        try:
            expected = bias_entries(bias, rows.q, rows.scales, rows.entries, values)[:, 0]
        except LayoutError:
            continue
        if np.array_equal(expected, stored):
            if float(factor) == rows.factor:
                return bias
            fitting.append(int(np.float32(factor).view(np.int32)))
    quotients = [bits for bits in fitting if _quotient(float(np.int32(bits).view(np.float32)), rows.span) is not None]
    found = simplest(quotients or fitting)
    return None if found is None else Bias(name, kind, float(found), zero)


def _quotient(factor: float, span: tuple[float, float]) -> float | None:
    """The factor of the scale entries where it is this one over a float32: input scale over output scale."""
    output = np.float32(factor / ((span[0] + span[1]) / 2))
    quotient = factor / float(output)
    return quotient if span[0] <= quotient <= span[1] else None


def _factors(
    rows: Rows, kind: str, zero: int, vector: Float32 | None, stored: npt.NDArray[np.uint32]
) -> Iterator[np.float32]:
    """That of the scale entries, then every float32 that the integers allow."""
    yield np.float32(rows.factor)
    if vector is None or kind != "int32":
        return
    steps = stored.view(np.int32).astype(np.float64) + zero * rows.q.sum(axis=1, dtype=np.int64)
    known = (np.abs(steps) > 1) & (vector != 0)
    if not known.any():
        return
    ratio = vector[known].astype(np.float64) / rows.scales[known]
    edges = np.sort(np.stack([ratio / (steps[known] - 0.5), ratio / (steps[known] + 0.5)]), axis=0)
    low, high = edges[0].max(), edges[1].min()
    if not 0 < low < np.inf:
        return
    first = np.float32(min(low, high)).view(np.int32) - 4
    last = np.float32(max(low, high)).view(np.int32) + 4
    yield from np.arange(first, min(last, first + ULPS) + 1, dtype=np.int32).view(np.float32)
