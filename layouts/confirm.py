"""Whether a layout may be used for writing: it must predict every weight-dependent byte of an engine with known weights.

Weight-dependent is found before the layout is looked at: a byte that differs between any two builds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32
from layouts.encoding import encode_rows
from layouts.errors import DecodeRefused
from layouts.marking import mark_tensor
from layouts.stored import EngineLayout, StoredTensor
from layouts.view import read_encoded

Bytes = npt.NDArray[np.uint8]
ReadWeight = Callable[[str, slice], Float32]
"""(tensor name, row range) -> float32 `[rows, cols]`, a vector as one row."""

ELEMENTS_AT_A_TIME = 1 << 18
CHUNK = 1 << 20
LISTED = 5


def confirm(layout: EngineLayout, builds: Sequence[Bytes], blob: Bytes, known: ReadWeight) -> None:
    """Confirm `layout` on `blob`, whose weights are `known`.

    Parameters
    ----------
    builds : weight blobs of one compiler, options and shape, at least two with different weights
    blob : the one of them whose weights are known

    Raises
    ------
    DecodeRefused : a blob of another size, a weight-dependent byte outside every tensor, a stored element that differs from the
        prediction; lists the first ranges or elements.
    """
    for build in builds:
        if build.size != layout.blob_bytes:
            raise DecodeRefused("blob size", where=layout.blob, expected=layout.blob_bytes, found=build.size)
    _check_explained(layout, builds)
    faults = [fault for stored in layout.tensors for fault in _differences(stored, blob, known)]
    if faults:
        raise DecodeRefused("stored elements that are not the known weights: " + "; ".join(faults[:LISTED]))


def _check_explained(layout: EngineLayout, builds: Sequence[Bytes]) -> None:
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


def _differences(stored: StoredTensor, blob: Bytes, known: ReadWeight) -> Iterator[str]:
    """One line for each copy that holds something else than the known weights."""
    rows, cols = stored.shape
    step = max(1, ELEMENTS_AT_A_TIME // cols)
    counts = dict.fromkeys((copy.name for copy in stored.copies), 0)
    first: dict[str, str] = {}
    for start in range(0, rows, step):
        expected = encode_rows(stored, known(stored.name, slice(start, min(start + step, rows)))).raw
        for copy in stored.copies:
            for low, high in copy.rows:
                low, high = max(low, start), min(high, start + step)
                if low >= high:
                    continue
                found = read_encoded(blob, stored, copy.name, slice(low, high)).raw
                bad = found != expected[low - start : high - start]
                if bad.any():
                    counts[copy.name] += int(np.count_nonzero(bad))
                    row, col = np.unravel_index(int(np.argmax(bad)), bad.shape)
                    first.setdefault(copy.name, f"[{low + int(row)}, {int(col)}]")
    for name, count in counts.items():
        if count:
            yield f"{stored.name} {name} copy: {count} elements, first {first[name]}"
