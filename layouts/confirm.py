"""Whether a layout may be used for writing: it must predict every weight-dependent byte of an engine with known weights.

Weight-dependent is found before the layout is looked at: a bit that differs between any two builds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from layouts.compare import Bytes, ReadWeight, compare_tensor, faults_of
from layouts.errors import DecodeRefused
from layouts.marking import mark_tensor
from layouts.stored import EngineLayout

__all__ = ["ReadWeight", "check_explained", "check_known", "confirm"]

CHUNK = 1 << 20
LISTED = 5


def confirm(layout: EngineLayout, builds: Sequence[Bytes], blob: Bytes, known: ReadWeight) -> dict[str, int]:
    """Confirm `layout` on `blob`, whose weights are `known`.

    Parameters
    ----------
    builds : weight blobs of one compiler, options and shape, at least two with different weights
    blob : the one of them whose weights are known
    known : engine weights; where the layout has a norm folded, its gain is in the values

    Returns
    -------
    tensor -> elements that the compiler has corrected by one step, at most one in 256

    Raises
    ------
    DecodeRefused : a blob of another size, a weight-dependent byte outside every tensor, a stored element or entry that
        differs from the prediction; lists the first ranges or elements.
    """
    check_explained(layout, builds)
    return check_known(layout, blob, known)


def check_known(layout: EngineLayout, blob: Bytes, known: ReadWeight) -> dict[str, int]:
    """That every copy of every tensor holds the known weights; returns and raises as `confirm` does."""
    faults, corrected = [], {}
    for stored in layout.tensors:
        found = compare_tensor(stored, blob, known)
        faults += faults_of(stored, found)
        corrected[stored.name] = max(copy.corrected for copy in found.values())
    if faults:
        raise DecodeRefused("stored elements that are not the known weights: " + "; ".join(faults[:LISTED]))
    return corrected


def check_explained(layout: EngineLayout, builds: Sequence[Bytes]) -> None:
    """That every bit that differs between builds belongs to a tensor. Raises DecodeRefused."""
    for build in builds:
        if build.size != layout.blob_bytes:
            raise DecodeRefused("blob size", where=layout.blob, expected=layout.blob_bytes, found=build.size)
    unexplained = list(_unexplained(layout, builds))
    if not unexplained:
        return
    places = np.concatenate(unexplained)
    starts = places[np.flatnonzero(np.diff(places, prepend=-2) > 1)]
    listed = ", ".join(str(int(start)) for start in starts[:LISTED])
    raise DecodeRefused(
        f"{places.size} weight-dependent bytes belong to no tensor, in runs that start at blob bytes {listed}",
        where=layout.blob,
        offset=int(places[0]),
    )


def _unexplained(layout: EngineLayout, builds: Sequence[Bytes]) -> Iterator[npt.NDArray[np.int64]]:
    """Places with a bit that differs between two builds and that no tensor owns, chunk by chunk."""
    for start in range(0, layout.blob_bytes, CHUNK):
        span = slice(start, start + CHUNK)
        differs = np.zeros(builds[0][span].size, np.uint8)
        for build in builds[1:]:
            differs |= builds[0][span] ^ build[span]
        owned = np.zeros_like(differs)
        for stored in layout.tensors:
            mark_tensor(owned, stored, start)
        at = np.flatnonzero(differs & ~owned)
        if at.size:
            yield start + at
