"""Columns of a profile that the rows do not show: told by the regularity of the others, and by what the builds hold there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from layouts.digits import Int64

MAX_LAG = 640
KEPT_LAGS = 24
PASSES = 4
TRIED = 6
LEAST_SHARE = 0.3

Holds = Callable[[int, int], bool]
"""Whether a column can stand at an address."""
UNKNOWN = np.int64(-(1 << 62))


def smooth(profile: Int64, backed: npt.NDArray[np.bool_], holds: Holds) -> Int64:
    """Mend the columns that are not `backed`.

    A column is expected as far from another as most columns so far apart are. What the builds hold at the places that most
    of the others expect decides, before what was seen of this column alone.

    Parameters
    ----------
    profile : address of each column, `UNKNOWN` where it was not seen
    backed : columns that several rows agree on

    Returns
    -------
    the profile; columns that are still unknown stay `UNKNOWN`
    """
    profile = profile.copy()
    open_columns = np.flatnonzero(~backed)
    for _ in range(PASSES):
        if not open_columns.size:
            break
        expected = _expectations(profile)
        changed = False
        for col in open_columns:
            found = _mended(int(col), profile[col], expected[:, col], holds)
            changed |= found != profile[col]
            profile[col] = found
        if not changed:
            break
    return profile


def _mended(col: int, seen: np.int64, expected: Int64, holds: Holds) -> np.int64:
    values, votes = np.unique(expected[expected != UNKNOWN], return_counts=True)
    for value in values[np.argsort(-votes, kind="stable")][:TRIED]:
        if value == seen or holds(col, int(value)):
            return np.int64(value)
    return seen


def _expectations(profile: Int64) -> Int64:
    """What other columns let expect of each, `[2 * lags, cols]`: the most regular distances, both ways."""
    cols = len(profile)
    shares = [_step(profile, lag) for lag in range(1, min(cols - 1, MAX_LAG) + 1)]
    regular = sorted(range(len(shares)), key=lambda index: -shares[index][1])[:KEPT_LAGS]
    regular = [index for index in regular if shares[index][1] >= LEAST_SHARE]
    table = np.full((2 * len(regular), cols), UNKNOWN, np.int64)
    for index, which in enumerate(regular):
        lag, (step, _) = which + 1, shares[which]
        table[2 * index, lag:] = profile[:-lag] + step
        table[2 * index + 1, :-lag] = profile[lag:] - step
    table[table < UNKNOWN // 2] = UNKNOWN
    return table


def _step(profile: Int64, lag: int) -> tuple[int, float]:
    """The middle step over so many columns, which is that of most of them where these are regular, and its share."""
    ahead, behind = profile[lag:], profile[:-lag]
    steps = (ahead - behind)[(ahead != UNKNOWN) & (behind != UNKNOWN)]
    if not steps.size:
        return 0, 0.0
    middle = int(np.partition(steps, len(steps) // 2)[len(steps) // 2])
    return middle, float(np.count_nonzero(steps == middle)) / (len(steps) + 2)
