"""Kinds of lines that turn out to be one: where both know an element they agree, and the lines hold the rest as well."""

from __future__ import annotations

import numpy as np

from layouts.anchors.lines import Seam, Sheets
from layouts.anchors.scan import Bytes, read_fields
from layouts.anchors.votes import ALIKE
from layouts.digits import Int64
from layouts.smooth import UNKNOWN

SAMPLED = 32


def merge_kinds(blob: Bytes, seam: Seam, sheets: Sheets) -> None:
    """Give lines the fuller of two profiles that say the same of them, in place."""
    known = [int(np.count_nonzero(profile != UNKNOWN)) for profile in sheets.profiles]
    order = sorted(range(len(known)), key=lambda kind: -known[kind])
    for index, kind in enumerate(order):
        for fuller in order[:index]:
            lines, copies = np.nonzero((sheets.kind == kind) & (sheets.base != UNKNOWN))
            moved = _moved(sheets.profiles[kind], sheets.profiles[fuller])
            if moved is None or not lines.size:
                continue
            bases = sheets.base[lines, copies] + moved
            if _hold(blob, seam, sheets.profiles[fuller], lines, bases):
                sheets.base[lines, copies], sheets.kind[lines, copies] = bases, fuller


def _moved(profile: Int64, fuller: Int64) -> np.int64 | None:
    """How far a profile is behind a fuller one, None where they differ."""
    both = (profile != UNKNOWN) & (fuller != UNKNOWN)
    if 2 * np.count_nonzero(both) <= np.count_nonzero(profile != UNKNOWN):
        return None
    apart = np.unique(profile[both] - fuller[both])
    return np.int64(apart[0]) if len(apart) == 1 else None


def _hold(blob: Bytes, seam: Seam, profile: Int64, lines: Int64, bases: Int64) -> bool:
    """Whether lines hold what a profile puts into them."""
    picked = np.unique(np.linspace(0, len(lines) - 1, min(len(lines), SAMPLED)).astype(np.int64))
    known = np.flatnonzero(profile != UNKNOWN)
    found = read_fields(blob, bases[picked, None] + profile[known], seam.window)
    return bool(((found == seam.read(lines[picked])[:, known].astype(np.int64)).mean(axis=1) >= ALIKE).all())
