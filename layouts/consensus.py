"""From where each element was seen to where it is: rows that are stored alike tell each other's columns (docs/markers.md).

Sightings are wrong here and there: a corrected element is not seen, and other bytes may spell its word. What counts in the end is
that every element is where the rows' pattern puts it, in all builds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from layouts.digits import Int64
from layouts.errors import DecodeRefused
from layouts.fit import MAX_PIECES
from layouts.row_places import RowPlaces, deduplicated
from layouts.sightings import Places, Witness
from layouts.smooth import UNKNOWN, smooth

SAMPLED_COLUMNS = 64
SAMPLED_ROWS = 48
MAX_KINDS, MAX_SEGMENTS = 1024, 16
MAX_JOINED = 64
FEW, ENOUGH = 3, 12
UNFIT, NEVER = 1 << 32, 1 << 62
BLOCK = 1 << 18

Flags = npt.NDArray[np.bool_]


@dataclass
class Missing:
    """Elements that are nowhere."""

    count: int = 0
    first: str = ""


def stored_twice(lowest: Places, highest: Places) -> Flags:
    """Rows most of whose elements stand in two places."""
    rows, cols = lowest.shape
    twice = np.zeros(rows, bool)
    for start, stop in _blocks(rows, cols):
        low, high = lowest[start:stop], highest[start:stop]
        twice[start:stop] = 2 * np.count_nonzero(low != high, axis=1) > np.count_nonzero(low >= 0, axis=1)
    return twice


def forget_single(lowest: Places, highest: Places, rows: Int64) -> None:
    """Of rows that are stored twice, an element that was seen once may be of either copy: it counts as not seen, in place."""
    for start, stop in _blocks(len(rows), lowest.shape[1]):
        block = rows[start:stop]
        row, col = np.nonzero(lowest[block] == highest[block])
        lowest[block[row], col] = highest[block[row], col] = -1


def column_segments(seen: Places, tail: int) -> list[tuple[int, int]]:
    """Ranges of columns inside which rows are alike: cut where the step to the next column is another in every row.

    The last `tail` columns are seen too seldom to be cut.
    """
    rows, cols = seen.shape
    picked = np.unique(np.linspace(0, rows - 1, min(rows, SAMPLED_ROWS)).astype(np.int64))
    table = seen[picked].astype(np.int64)
    known = (table[:, 1:] >= 0) & (table[:, :-1] >= 0)
    steps = np.sort(np.where(known, np.diff(table, axis=1), UNKNOWN), axis=0)
    often = max(FEW, len(picked) // 5)
    repeated = (steps[: len(picked) - often + 1] == steps[often - 1 :]) & (steps[often - 1 :] != UNKNOWN)
    cuts = np.flatnonzero(~repeated.any(axis=0) & (np.count_nonzero(known, axis=0) >= ENOUGH)) + 1
    cuts = cuts[cuts < cols - tail]
    if len(cuts) >= MAX_SEGMENTS:
        return [(0, cols)]
    return list(pairwise([0, *(int(cut) for cut in cuts), cols]))


def settle(witness: Witness, own: Places, other: Places, rows: Int64, missing: Missing) -> RowPlaces:
    """Places of some rows.

    Rows with elements that were seen elsewhere than their pattern puts them are looked at again, by themselves, for as long as
    that makes any of them better.

    Parameters
    ----------
    own, other : `[rows, cols]` of the whole matrix: the sightings that these places are among, and the other ones
    rows : which rows
    missing : elements that are nowhere are counted here

    Raises DecodeRefused when rows follow no common pattern.
    """
    total = own.shape[0]
    places = RowPlaces(np.full(total, -1, np.int64), np.zeros(total, np.int32), [])
    faults, every = np.full(total, NEVER), rows
    while rows.size:
        before = places.base[rows], places.kind[rows]
        _place(witness, own, rows, places)
        found = _faults(witness, own, other, rows, places)
        better = (found < faults[rows]) & ((faults[rows] >= UNFIT) | _shared(places.kind[rows]))
        faults[rows[better]] = found[better]
        places.base[rows[~better]], places.kind[rows[~better]] = before[0][~better], before[1][~better]
        rows = rows[better & (found > 0)]
    unfit = every[faults[every] >= UNFIT]
    lonely = [row for row in unfit if not _join(witness, own, row[None], places)]
    _as_seen(witness, own, other, np.array(lonely, np.int64), places, missing)
    return deduplicated(places.base, places.kind, places.profiles)


def _shared(kind: npt.NDArray[np.int32]) -> Flags:
    """Rows whose pattern is that of a few at least: a false sighting makes no pattern of its own."""
    shared: Flags = np.bincount(kind)[kind] >= FEW
    return shared


def _faults(witness: Witness, own: Places, other: Places, rows: Int64, places: RowPlaces) -> Int64:
    """How wrong the pattern of each row is: elements that cannot be where it puts them, then those that were seen elsewhere."""
    row, col = _seen_elsewhere(own, other, rows, places)
    unfit = ~witness.bears(row, col, places.at(row, col))
    weight = np.where(unfit, UNFIT, own[row, col] >= 0)
    found: Int64 = np.bincount(row, weight, minlength=own.shape[0]).astype(np.int64)[rows]
    return found


def _place(witness: Witness, own: Places, rows: Int64, places: RowPlaces) -> None:
    """Give rows the patterns that they have in common, those of many rows first. Raises DecodeRefused if there are none."""
    kind, offset, kinds = _cluster(own, rows)
    lonely = 0
    for index in np.argsort(-np.bincount(kind, minlength=kinds), kind="stable"):
        members = np.flatnonzero(kind == index)
        if len(members) < FEW and _join(witness, own, rows[members], places):
            continue
        lonely += len(members) < FEW
        if lonely > MAX_PIECES:
            raise DecodeRefused("rows follow no common pattern", where=witness.matrix.name, found=f"{kinds} kinds")
        profile = _profile(witness, own, rows[members], offset[members])
        places.base[rows[members]] = offset[members] + profile[0]
        places.kind[rows[members]] = len(places.profiles)
        places.profiles.append(profile - profile[0])


def _join(witness: Witness, own: Places, rows: Int64, places: RowPlaces) -> bool:
    """Whether a pattern of other rows holds for all of these; they are given it then."""
    seen = own[rows].astype(np.int64)
    for index, profile in enumerate(places.profiles[:MAX_JOINED]):
        steps = np.where(seen >= 0, seen - profile, UNKNOWN)
        valid = np.count_nonzero(seen >= 0, axis=1)
        for base in (_middle(steps, valid), _middle(steps, valid, lower=1)):
            if 2 * np.count_nonzero(steps == base[:, None]) < np.count_nonzero(seen >= 0):
                continue
            row, col = np.repeat(rows, len(profile)), np.tile(np.arange(len(profile)), len(rows))
            if witness.bears(row, col, (base[:, None] + profile).ravel()).all():
                places.base[rows], places.kind[rows] = base, index
                return True
    return False


def _blocks(rows: int, cols: int) -> list[tuple[int, int]]:
    step = max(1, BLOCK // cols)
    return [(start, min(start + step, rows)) for start in range(0, rows, step)]


def _cluster(own: Places, rows: Int64) -> tuple[npt.NDArray[np.int32], Int64, int]:
    """Kinds of rows whose columns stand at the same distances, each row's offset from the first of its kind, how many kinds."""
    cols = own.shape[1]
    picked = np.unique(np.linspace(0, cols - 1, min(cols, SAMPLED_COLUMNS)).astype(np.int64))
    seen = own[rows[:, None], picked[None]].astype(np.int64)
    kind, offset = np.full(len(rows), -1, np.int32), np.zeros(len(rows), np.int64)
    left, kinds = np.arange(len(rows)), 0
    while left.size:
        if kinds == MAX_KINDS:
            raise DecodeRefused("rows follow no common pattern", found=f"more than {MAX_KINDS} kinds")
        seed = left[int(np.argmax(np.count_nonzero(seen[left[:8]] >= 0, axis=1)))]
        both = (seen[left] >= 0) & (seen[seed] >= 0)
        steps = np.where(both, seen[left] - seen[seed], UNKNOWN)
        middle = _middle(steps, np.count_nonzero(both, axis=1))
        agree = np.count_nonzero(steps == middle[:, None], axis=1)
        alike = (8 * agree >= 7 * np.count_nonzero(both, axis=1)) & (middle != UNKNOWN)
        alike |= left == seed
        members = left[alike]
        kind[members], offset[members] = kinds, np.where(members == seed, 0, middle[alike])
        kinds += 1
        left = left[~alike]
    return kind, offset, kinds


def _middle(steps: Int64, valid: Int64, lower: int = 0) -> Int64:
    """The median of each row's known steps: that of most of them, if there is such a one; `UNKNOWN` where none is known.

    Of two in the middle it is the upper one, or the `lower`.
    """
    ordered = np.sort(steps, axis=1)
    at = steps.shape[1] - valid + np.maximum(valid - lower, 0) // 2
    return np.take_along_axis(ordered, np.minimum(at, steps.shape[1] - 1)[:, None], axis=1)[:, 0]


def _profile(witness: Witness, own: Places, rows: Int64, offset: Int64) -> Int64:
    """Address of each column in the row whose offset is 0, by what most rows say."""
    picked = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), SAMPLED_ROWS)).astype(np.int64))
    rows, offset = rows[picked], offset[picked]
    seen = own[rows].astype(np.int64)
    seen = np.where(seen >= 0, seen - offset[:, None], UNKNOWN)
    valid = np.count_nonzero(seen != UNKNOWN, axis=0)
    profile = _middle(seen.T, valid)
    agree = np.count_nonzero(seen == profile, axis=0)
    backed = (agree >= 2) & (2 * agree > valid) & (2 * agree > len(rows)) & (profile != UNKNOWN)

    def holds(col: int, address: int) -> bool:
        fitting = witness.fits(rows, np.full(len(rows), col), address + offset)
        return bool(10 * np.count_nonzero(fitting) >= 9 * len(rows))

    profile = smooth(profile, backed, holds)
    for col in np.flatnonzero(~backed):
        if profile[col] == UNKNOWN or not holds(int(col), int(profile[col])):
            found = _searched(witness, int(col), rows, offset)
            profile[col] = profile[col] if found == UNKNOWN else found
    return profile


def _searched(witness: Witness, col: int, rows: Int64, offset: Int64) -> int:
    """The one address at which every row has this column in all builds, `UNKNOWN` where there is none or another."""
    found = witness.search(int(rows[0]), col) - offset[0]
    for row, start in zip(rows[1:], offset[1:], strict=True):
        if len(found) <= 1:
            break
        at = np.full(len(found), row), np.full(len(found), col)
        found = found[witness.fits(*at, found + start)]
    return int(found[0]) if len(found) == 1 else int(UNKNOWN)


def _seen_elsewhere(own: Places, other: Places, rows: Int64, places: RowPlaces) -> tuple[Int64, Int64]:
    """Rows and columns of the elements that were not seen where the pattern of their row puts them."""
    found: list[tuple[Int64, Int64]] = []
    for start, stop in _blocks(len(rows), own.shape[1]):
        block = rows[start:stop]
        table = places.of(block)
        row, col = np.nonzero((own[block] != table) & (other[block] != table))
        found.append((block[row], col))
    return np.concatenate([row for row, _ in found]), np.concatenate([col for _, col in found])


def _as_seen(witness: Witness, own: Places, other: Places, rows: Int64, places: RowPlaces, missing: Missing) -> None:
    """Rows without a pattern in common: every element that cannot be where it is put is where it was seen."""
    for row in rows:
        at, col = _seen_elsewhere(own, other, row[None], places)
        col = col[~witness.bears(at, col, places.at(at, col))]
        addresses, seen = places.of(row[None])[0], own[row, col].astype(np.int64)
        lost = seen < 0
        if lost.any():
            missing.first = missing.first or f"[{row}, {witness.left + col[int(np.argmax(lost))]}]"
            missing.count += int(np.count_nonzero(lost))
        addresses[col] = seen
        places.base[row], places.kind[row] = addresses[0], len(places.profiles)
        places.profiles.append(addresses - addresses[0])
