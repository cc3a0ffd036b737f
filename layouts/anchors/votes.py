"""Where lines of a known profile begin: windows speak for a base, elements confirm it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from layouts.anchors.scan import Bytes, Fields, Window, read_fields
from layouts.digits import Int64
from layouts.smooth import UNKNOWN

PROBES, CHECKED = 48, 256
ALIKE = 0.9


def whole_windows(profile: Int64, window: Window) -> Int64:
    """Elements at which a window stands unbroken."""
    length = len(profile) - window.count + 1
    if length < 1:
        return np.zeros(0, np.int64)
    head, tail = profile[:length], profile[window.count - 1 :]
    fits = (head != UNKNOWN) & (tail != UNKNOWN) & (tail - head == (window.count - 1) * window.step)
    return np.flatnonzero(fits)


def vote(blob: Bytes, window: Window, profile: Int64, whole: Int64, fields: Fields) -> list[tuple[int, int]]:
    """Bases of lines that windows speak for and elements confirm: line and base, the surest first."""
    probes = whole[np.unique(np.linspace(0, len(whole) - 1, min(PROBES, len(whole))).astype(np.int64))]
    good = np.flatnonzero(window.telling(fields, probes))
    index, place = window.find(blob, window.keys(fields, probes).ravel()[good])
    line, probe = np.divmod(good[index], len(probes))
    pairs, votes = np.unique(np.stack([line, place * 8 - profile[probes[probe]]], axis=1), axis=0, return_counts=True)
    pairs = pairs[2 * votes >= np.minimum(4, len(probes))]
    shares = _shares(blob, window, profile, fields, pairs[:, 0], pairs[:, 1])
    order = np.lexsort((pairs[:, 1], -shares, pairs[:, 0]))
    return [(int(pairs[index, 0]), int(pairs[index, 1])) for index in order if shares[index] >= ALIKE]


def _shares(
    blob: Bytes, window: Window, profile: Int64, fields: Fields, lines: Int64, bases: Int64
) -> npt.NDArray[np.float64]:
    """How many of the elements that are looked at stand where a base puts them."""
    known = np.flatnonzero(profile != UNKNOWN)
    picked = known[np.unique(np.linspace(0, len(known) - 1, min(CHECKED, len(known))).astype(np.int64))]
    same = np.zeros(len(lines))
    for start in range(0, len(lines), 1 << 16):
        part = slice(start, start + (1 << 16))
        found = read_fields(blob, bases[part, None] + profile[picked], window)
        same[part] = (found == fields[lines[part, None], picked].astype(np.int64)).mean(axis=1)
    return same
