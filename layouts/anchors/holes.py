"""What windows do not show of lines that were found: short ends, lines of zeros, elements that the compiler dropped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layouts.anchors.lines import MAX_COPIES, Seam, Sheets
from layouts.anchors.scan import Bytes, Fields, Flags, read_fields
from layouts.anchors.votes import ALIKE
from layouts.digits import Int64
from layouts.fit import fit_lines
from layouts.smooth import UNKNOWN, smooth

SAMPLED = 48
SURE = 0.98
NEAR_BITS, PROBED, TRIED = 1 << 18, 8, 16
SHORT_KIND = 2


def fill(blob: Bytes, seam: Seam, sheets: Sheets, last: bool) -> None:
    """Mend profiles and bases in place: where the regularity of the others puts an element or a line, and the blob agrees."""
    for kind in range(len(sheets.profiles)):
        _fill_profile(blob, seam, sheets, kind)
    for copy in range(MAX_COPIES):
        _fill_bases(blob, seam, sheets, copy, last)


def _fill_profile(blob: Bytes, seam: Seam, sheets: Sheets, kind: int) -> None:
    profile = sheets.profiles[kind]
    lines, copies = np.nonzero((sheets.kind == kind) & (sheets.base != UNKNOWN))
    if not lines.size:
        return
    picked = np.unique(np.linspace(0, len(lines) - 1, min(len(lines), SAMPLED)).astype(np.int64))
    lines, copies = lines[picked], copies[picked]
    fields, bases = seam.read(lines), sheets.base[lines, copies]

    def holds(element: int, offset: int) -> bool:
        if offset in own or seam.claims.taken(np.clip(bases + offset, 0, 8 * blob.size - 8)).mean() > 1 - ALIKE:
            return False
        found = read_fields(blob, bases + offset, seam.window)
        return bool((found == fields[:, element].astype(np.int64)).mean() >= ALIKE)

    known = np.flatnonzero(profile != UNKNOWN)
    found = read_fields(blob, bases[:, None] + profile[known], seam.window)
    wrong = known[(found == fields[:, known].astype(np.int64)).mean(axis=0) < ALIKE]
    profile = profile.copy()
    profile[wrong] = UNKNOWN
    plain = _plain(fields)
    own = set(profile[(profile != UNKNOWN) & ~plain].tolist())
    skipped = np.zeros(len(profile), np.bool_) if seam.stored is None else ~seam.stored
    mended = np.where(skipped, UNKNOWN, smooth(profile, ((profile != UNKNOWN) & ~plain) | skipped, holds))
    mended = _fill_runs(blob, seam, fields, bases, mended, skipped)
    _, first = np.unique(mended, return_index=True)
    twice = np.ones(len(mended), np.bool_)
    twice[first] = False
    sheets.profiles[kind] = np.where(twice, UNKNOWN, mended)


def _fill_runs(blob: Bytes, seam: Seam, fields: Fields, bases: Int64, profile: Int64, skipped: Flags) -> Int64:
    """Runs of elements that are too short for a window and like no others: the one place near by at which all lines hold them."""
    unknown = np.concatenate([[False], (profile == UNKNOWN) & ~skipped, [False]])
    for first, end in np.flatnonzero(np.diff(unknown)).reshape(-1, 2).tolist():
        if 2 <= end - first < seam.window.count and (profile != UNKNOWN).any():
            offset = _only_place(blob, seam, fields[:, first:end], bases)
            if offset is not None:
                profile = profile.copy()
                profile[first:end] = offset + np.arange(end - first) * seam.window.step
    return profile


def _only_place(blob: Bytes, seam: Seam, run: Fields, bases: Int64) -> int | None:
    """The distance from their bases at which nine tenths of the lines hold a run, None where there is none or another."""
    offsets = np.arange(-NEAR_BITS, NEAR_BITS, max(4, min(8, seam.window.width)))
    within = np.arange(run.shape[1]) * seam.window.step
    good = np.zeros(len(offsets))
    for line, base in zip(run[:PROBED].astype(np.int64), bases[:PROBED], strict=True):
        at = np.flatnonzero(read_fields(blob, base + offsets, seam.window) == line[0])
        for index in range(1, len(within)):
            at = at[read_fields(blob, base + offsets[at] + within[index], seam.window) == line[index]]
        good[at] += 1
    tried = offsets[good >= ALIKE * min(PROBED, len(run))][:TRIED]
    fitting = [
        int(offset)
        for offset in tried
        if not seam.claims.taken(np.clip(bases[:, None] + offset + within, 0, 8 * blob.size - 8)).any()
        and (read_fields(blob, bases[:, None] + offset + within, seam.window) == run.astype(np.int64)).mean() >= ALIKE
    ]
    return fitting[0] if len(fitting) == 1 else None


def _plain(fields: Fields) -> Flags:
    """Elements that have one value in most lines: they may be seen where they are not, so regularity comes first."""
    ordered = np.sort(fields, axis=0)
    half = len(fields) // 2
    plain: Flags = (ordered[half:] == ordered[: len(fields) - half]).any(axis=0) & (len(fields) > 2)
    return plain


def _fill_bases(blob: Bytes, seam: Seam, sheets: Sheets, copy: int, last: bool) -> None:
    """Lines of one copy that were not found; of a copy that holds some lines, only those between others that it holds."""
    bases = sheets.base[:, copy]
    known = np.flatnonzero(bases != UNKNOWN)
    if not known.size or known.size == seam.lines or known.size < 2:
        return

    def holds(line: int, base: int) -> bool:
        return any(_stands(blob, seam, sheets, line, base, kind) for kind in _near(sheets, copy, known, line))

    open_lines = bases == UNKNOWN
    if copy:
        open_lines[: known[0]] = open_lines[known[-1] :] = False
        open_lines &= sheets.base[:, 0] != UNKNOWN
        open_lines &= _between(bases)
    lines = np.flatnonzero(open_lines)
    if lines.size and not last:  # lines of one value fit anywhere: they wait until all others are told
        fields = seam.read(lines)
        open_lines[lines[(fields == fields[:, :1]).all(axis=1)]] = False
    if not open_lines.any():
        return
    mended = smooth(bases, ~open_lines, holds)
    for line in np.flatnonzero(open_lines):
        for base, kind in _tried(sheets, copy, known, int(line), mended[line]):
            if _stands(blob, seam, sheets, int(line), base, kind):
                sheets.base[line, copy], sheets.kind[line, copy] = base, kind
                break


def _tried(sheets: Sheets, copy: int, known: Int64, line: int, mended: np.int64) -> Iterator[tuple[int, int]]:
    """Bases and kinds: as the line before has it, one line's whole digits further; as most lines so far apart are."""
    before = known[known < line]
    if before.size and line - before[-1] <= 2:
        kind = int(sheets.kind[before[-1], copy])
        profile = sheets.profiles[kind]
        own = profile[profile != UNKNOWN]
        own = own - own.min()
        digits = fit_lines(own[:1], own, (0, 0), 1)[0].layout.cols if own.size > 1 else ()
        if digits and (sheets.kind[known, copy] == kind).sum() <= SHORT_KIND:
            reach = digits[-1].size * digits[-1].stride
            yield int(sheets.base[before[-1], copy]) + reach * int(line - before[-1]), kind
    if mended != UNKNOWN:
        for kind in _near(sheets, copy, known, line):
            yield int(mended), kind


def _between(bases: Int64) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Lines whose neighbours on both sides, at most two away, are known."""
    known = bases != UNKNOWN
    before, behind = np.zeros_like(known), np.zeros_like(known)
    for far in (1, 2):
        before[far:] |= known[:-far]
        behind[:-far] |= known[far:]
    between: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = before & behind
    return between


def _near(sheets: Sheets, copy: int, known: Int64, line: int) -> list[int]:
    """Kinds of the nearest lines that are known."""
    at = int(np.searchsorted(known, line))
    near = known[max(0, at - 1) : at + 1]
    return list(dict.fromkeys(int(kind) for kind in sheets.kind[near, copy]))


def _stands(blob: Bytes, seam: Seam, sheets: Sheets, line: int, base: int, kind: int) -> bool:
    profile = sheets.profiles[kind]
    known = np.flatnonzero(profile != UNKNOWN)
    fields = seam.read(np.array([line]))[0, known]
    found = read_fields(blob, base + profile[known], seam.window)
    return bool((found == fields.astype(np.int64)).mean() >= SURE)
