"""Scale entries float32(scale * factor) of an unknown factor, and the factor itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from layouts.anchors.scan import Bytes
from layouts.codecs import Float32
from layouts.digits import Int64

Float64 = npt.NDArray[np.float64]

WINDOW = 8
TRIED = 12
NEAR = 2e-7
LEAST_SPREAD = 1e-3
WORDS_AT_A_TIME = 1 << 18


def find_factors(blob: Bytes, scales: Float32) -> list[float]:
    """Factors, not yet exact, under which entries of some consecutive rows stand in the blob, the likeliest first.

    Parameters
    ----------
    scales : float32 `[rows]`
    """
    found = [
        (float(np.median(words / scales[rows])), factor_range(words, scales[rows]))
        for rows in _windows(scales)
        for words in _multiples(blob, scales[rows])
    ]
    clusters: list[list[tuple[float, float]]] = []
    last = -1.0
    for ratio, span in sorted((ratio, span) for ratio, span in found if span is not None):
        if ratio - last > NEAR * ratio:
            clusters.append([])
        clusters[-1].append(span)
        last = ratio
    clusters.sort(key=len, reverse=True)
    return [_middle(cluster) for cluster in clusters[:TRIED]]


def _middle(spans: list[tuple[float, float]]) -> float:
    """A factor that most ranges hold: the middle of what they have in common, else of the middle ones."""
    low, high = np.array(spans).T
    common = low.max(), high.min()
    return float(sum(common) / 2 if common[0] <= common[1] else (np.median(low) + np.median(high)) / 2)


def _windows(scales: Float32) -> list[Int64]:
    """Runs of rows whose scales differ most: a run of equal ones is like any constant."""
    size = min(WINDOW, len(scales))
    starts = np.arange(0, max(1, len(scales) - size + 1), max(1, size // 2))
    logs = np.log2(scales.astype(np.float64))
    spread = np.array([np.ptp(logs[start : start + size]) for start in starts])
    best = [
        start
        for start in starts[np.argsort(-spread, kind="stable")[:TRIED]]
        if np.ptp(logs[start : start + size]) > LEAST_SPREAD
    ]
    return [np.arange(start, start + size) for start in best] if size > 1 else []


def _multiples(blob: Bytes, scales: Float32) -> list[Float32]:
    """Words side by side that are so many times the scales."""
    wide = scales.astype(np.float64)
    unit, found = wide / np.linalg.norm(wide), []
    for phase in range(4):
        words = np.ascontiguousarray(blob[phase : phase + (blob.size - phase) // 4 * 4]).view("<f4")
        for start in range(0, len(words) - len(unit) + 1, WORDS_AT_A_TIME):
            part = words[start : start + WORDS_AT_A_TIME + len(unit) - 1]
            part = np.where(np.isfinite(part) & (np.abs(part) < 1e30), part, np.float32(0))
            table = np.lib.stride_tricks.sliding_window_view(part.astype(np.float64), len(unit))
            along = table @ unit
            rest = np.maximum(np.einsum("ij,ij->i", table, table) - along * along, 0.0)
            for index in np.flatnonzero((along > 1e-30) & (rest < (NEAR * along) ** 2 * len(unit))):
                window = part[index : index + len(unit)]
                ratio = window / wide
                if (window > 0).all() and np.ptp(ratio) < NEAR * ratio[0]:
                    found.append(window.astype(np.float32))
    return found


def factor_range(entries: Float32, scales: Float32) -> tuple[float, float] | None:
    """Smallest and largest factor under which every entry is the float32 nearest to scale * factor; None where there is none.

    The product is in float64, as `Scales` has it.
    """
    wide, below, above = (
        side.astype(np.float64)
        for side in (entries, np.nextafter(entries, np.float32(0)), np.nextafter(entries, np.float32(np.inf)))
    )
    low = float(((wide + below) / 2 / scales).max())
    high = float(((wide + above) / 2 / scales).min())
    return (low, high) if 0 < low <= high < np.inf else None


def factors_in(low: float, high: float, entries: Float32, scales: Float32) -> list[float]:
    """Float32 factors of a range, else the numbers of the fewest bits in it, that give every entry exactly."""
    first, last = np.float32(low).view(np.int32) - 1, np.float32(high).view(np.int32) + 1
    floats = [float(np.int32(bits).view(np.float32)) for bits in range(int(first), int(last) + 1)]
    fitting = [factor for factor in floats if gives(factor, entries, scales)]
    if fitting:
        return sorted(fitting, key=_bits)
    return [factor for factor in _shortest(low, high) if gives(factor, entries, scales)]


def gives(factor: float, entries: Float32, scales: Float32) -> bool:
    return np.array_equal((scales * np.float64(factor)).astype(np.float32), entries)


def _shortest(low: float, high: float) -> list[float]:
    """Numbers of the fewest binary digits in a range."""
    exponent = int(np.frexp(high)[1])
    for digits in range(1, 60):
        grain = 2.0 ** (exponent - digits)
        first = int(np.ceil(low / grain))
        if first * grain <= high:
            return [first * grain, (first + 1) * grain]
    return [low]


def _bits(factor: float) -> tuple[int, float]:
    """Binary digits of a float32."""
    value = int(np.float32(factor).view(np.int32))
    return -(value & -value), factor


def simplest(bits: list[int]) -> np.float32 | None:
    """Of float32 bit patterns the one with most trailing zeros, then the lowest."""
    if not bits:
        return None
    return np.int32(max(bits, key=lambda value: (value & -value, -value))).view(np.float32)
