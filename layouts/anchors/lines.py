"""Places of all lines of one plane: a profile of the elements of a line, and a base for each line (docs/anchors.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layouts.anchors.chains import chains, consensus
from layouts.anchors.claims import Claims
from layouts.anchors.scan import Bytes, Fields, Flags, Window
from layouts.anchors.votes import vote, whole_windows
from layouts.digits import Int64
from layouts.smooth import UNKNOWN

SAMPLED_LINES = 40
MAX_WINDOWS = 1 << 18
MAX_FIELDS = 1 << 23
MAX_COPIES, MAX_KINDS = 4, 8

MOST_TAKEN = 0.1
LEAST_SUPPORT, LEAST_LINES = 0.01, 0.05
LEAST_LINE, LEAST_COVERED = 0.04, 0.3

ReadLines = Callable[[Int64], Fields]
"""Expected stored fields of lines, `[lines, length]`."""


@dataclass(frozen=True)
class Seam:
    """One plane of a tensor, to be looked for in a blob.

    lines, length : how many lines, fields of a line
    read : what is expected
    claims : what other tensors own, and this one's lines as they are found
    stored : elements of a line that may be there at all, None for every one
    covered : a profile that knows a smaller share of elements than this, of the fullest, is false: for fields that say little
    """

    lines: int
    length: int
    window: Window
    read: ReadLines
    claims: Claims
    stored: Flags | None = None
    covered: float = 0.0

    def starts(self) -> Int64:
        """Elements at which a window of stored ones begins."""
        count = max(0, self.length - self.window.count + 1)
        if self.stored is None or not count:
            return np.arange(count)
        inside = np.lib.stride_tricks.sliding_window_view(self.stored, self.window.count)
        return np.flatnonzero(inside.all(axis=1))


@dataclass
class Sheets:
    """Where lines stand, at most four times each: element i of line l at `base[l, copy] + profiles[kind[l, copy]][i]`.

    profiles : int64 `[length]` each, bits from the first element that is known; UNKNOWN where an element is not
    base : int64 `[lines, 4]` bits, UNKNOWN for none; of the places of a line the fullest come first, then the lowest
    kind : int32 `[lines, 4]`
    """

    profiles: list[Int64]
    base: Int64
    kind: npt.NDArray[np.int32]

    @property
    def copies(self) -> Int64:
        """How often each line was found."""
        copies: Int64 = np.count_nonzero(self.base != UNKNOWN, axis=1)
        return copies


def no_sheets(seam: Seam) -> Sheets:
    """Sheets of a plane of which nothing is known yet."""
    shape = (seam.lines, MAX_COPIES)
    return Sheets([], np.full(shape, UNKNOWN), np.zeros(shape, np.int32))


def extend_sheets(blob: Bytes, seam: Seam, sheets: Sheets) -> bool:
    """Look for the lines that have no place yet; whether any was found."""
    left = np.flatnonzero(sheets.copies == 0)
    if not left.size:
        return False
    profiles = _kinds(blob, seam, _spread(left, seam))
    for least in (max(2, int(LEAST_LINES * left.size)), 1):  # a chain that has gone astray explains a line or two
        profiles = [profile for profile in profiles if not _claim(blob, seam, profile, left, sheets, least)]
    _prune(seam, sheets)
    _order_places(sheets)
    return bool(np.count_nonzero(sheets.copies == 0) < left.size)


def _prune(seam: Seam, sheets: Sheets) -> None:
    """Drop kinds of a few places, where the lines have others or where they hold little of a line: that is chance."""
    known = [int(np.count_nonzero(profile != UNKNOWN)) for profile in sheets.profiles]
    for kind in range(len(known)):
        own = (sheets.kind == kind) & (sheets.base != UNKNOWN)
        if int(np.count_nonzero(own)) * known[kind] < LEAST_SUPPORT * seam.lines * seam.length:
            partial = 2 * known[kind] < max(known)
            sheets.base[own & ((sheets.copies > 1)[:, None] | partial)] = UNKNOWN


def _spread(lines: Int64, seam: Seam) -> Int64:
    """Some of the lines, all over them, no more than windows are affordable."""
    count = max(4, min(SAMPLED_LINES, MAX_WINDOWS // seam.length))
    return np.unique(lines[np.linspace(0, len(lines) - 1, min(len(lines), count)).astype(np.int64)])


def _kinds(blob: Bytes, seam: Seam, picked: Int64) -> list[Int64]:
    """Profiles that the sampled lines follow, those that explain the most elements first."""
    window, starts = seam.window, seam.starts()
    if not starts.size:
        return []
    fields = seam.read(picked)
    good = np.flatnonzero(window.telling(fields, starts))
    index, place = window.find(blob, window.keys(fields, starts).ravel()[good])
    free = ~seam.claims.taken(place * 8)
    index, place = index[free], place[free]
    line, which = np.divmod(good[index], len(starts))
    start = starts[which]
    found: list[Int64] = []
    for number in range(len(picked)):
        own = slice(*np.searchsorted(line, [number, number + 1]))
        found += chains(
            start[own], place[own] * 8, window.count, seam.length, window.step, LEAST_COVERED * seam.covered
        )
    if not found:
        return []
    kinds = consensus(np.stack(found))
    weights = [-len(members) * np.count_nonzero(profile >= 0) for members, _, profile in kinds]
    return [_relative(kinds[index][2]) for index in np.argsort(weights, kind="stable")[:MAX_KINDS]]


def _relative(profile: Int64) -> Int64:
    known = profile >= 0
    first = profile[int(np.argmax(known))] if known.any() else np.int64(0)
    return np.where(known, profile - first, UNKNOWN)


def _claim(blob: Bytes, seam: Seam, profile: Int64, lines: Int64, sheets: Sheets, least: int) -> bool:
    """Give lines the places that a profile finds for them, if it finds so many: only full ones, and none twice."""
    known = np.count_nonzero(profile != UNKNOWN)
    covered = [np.count_nonzero(other != UNKNOWN) for other in sheets.profiles]
    if known < seam.covered * max(covered, default=0) * (sheets.copies[lines] > 0).any():
        lines = lines[sheets.copies[lines] == 0]
    whole = whole_windows(profile, seam.window)
    if not whole.size or not lines.size:
        return False
    step = max(1, MAX_FIELDS // seam.length)
    voted = [
        (int(lines[first + line]), base)
        for first in range(0, len(lines), step)
        for line, base in vote(blob, seam.window, profile, whole, seam.read(lines[first : first + step]))
    ]
    if len({line for line, _ in voted}) < least:
        return False
    sheets.profiles.append(profile)
    if _add_places(seam, sheets, voted):
        return True
    sheets.profiles.pop()
    return False


def _add_places(seam: Seam, sheets: Sheets, voted: list[tuple[int, int]]) -> bool:
    """Every line's best place before any line's second one: what another line owns is no copy."""
    kind, used, waiting = len(sheets.profiles) - 1, False, voted
    profile = sheets.profiles[kind]
    offsets = profile[profile != UNKNOWN]
    while waiting:
        now, later, served = waiting, [], set[int]()
        for line, base in now:
            if line in served:
                later.append((line, base))
                continue
            count = int(np.count_nonzero(sheets.base[line] != UNKNOWN))
            at = base + offsets
            if count < MAX_COPIES and seam.claims.share(at, seam.window.width) <= MOST_TAKEN:
                served.add(line)
                seam.claims.take(at, seam.window.width)
                sheets.base[line, count], sheets.kind[line, count] = base, kind
                used = True
        waiting = later
    return used


def _order_places(sheets: Sheets) -> None:
    known = np.array([*(np.count_nonzero(profile != UNKNOWN) for profile in sheets.profiles), 0])
    high = np.where(sheets.base == UNKNOWN, np.iinfo(np.int64).max, sheets.base)
    order = np.lexsort((high, -known[sheets.kind], sheets.base == UNKNOWN), axis=1)
    sheets.base = np.take_along_axis(sheets.base, order, axis=1)
    sheets.kind = np.take_along_axis(sheets.kind, order, axis=1)
