"""From marker builds to a confirmed layout of a float engine, by weight blobs alone.

Builds 0 and 1 place every element (layouts/markers.py); the third build, of full float32 values, tells the codec of each
tensor and confirms the whole (layouts/confirm.py). No microcode, no name and no offset of any compiler is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from layouts.algebra import Piece
from layouts.codecs import Float32, codec
from layouts.confirm import ReadWeight, confirm
from layouts.digits import Int64
from layouts.errors import DecodeRefused, FitRefused, LayoutError
from layouts.fit import fit
from layouts.markers import NOT_FOUND, Alphabet, Blob, MarkedTensor, Sightings, find_markers
from layouts.simplest import Copies, simplest_copies
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from layouts.view import read_encoded

# A bf16 marker is the upper half of the stored float, an fp16 one is it: where the element begins relative to its marker.
CODEC_SHIFTS = {"bf16": {"fp32": -2, "bf16": 0, "bf16_truncated": 0}, "fp16": {"fp16": 0}}
MARKER_BITS = 16
MAX_RUNS = 10
SAMPLE_ROWS = 64

DECODE, PREFILL = "decode", "prefill"


@dataclass(frozen=True)
class FloatMarkers:
    """What the marker builds of a float engine hold: even builds a marker's first value, odd ones its second."""

    tensors: tuple[MarkedTensor, ...]
    alphabet: Alphabet

    def values(self, name: str, build: int, rows: slice) -> Float32:
        """Rows of a tensor in a marker build, float32 `[rows, cols]`; a vector is one row."""
        tensor = next(tensor for tensor in self.tensors if tensor.name == name)
        bits = tensor.values(self.alphabet, build % 2, rows.start, rows.stop)
        return codec(tensor.form).decode(bits.reshape(-1, tensor.grid[1]))


def decode_float_engine(
    kind: str, blob: tuple[str, int], builds: Sequence[Blob], markers: FloatMarkers, known: ReadWeight
) -> EngineLayout:
    """Place every element of every tensor and every copy, and confirm.

    Parameters
    ----------
    kind : goes into the result
    blob : name of the weight blob, and its offset in the engine file
    builds : the weight blobs of two or more marker builds, of which the first two are decoded, and of the confirming build, uint8
    markers : how the marker builds are numbered
    known : weights of the confirming build

    Raises
    ------
    DecodeRefused : an element that is nowhere or in too many places, a tensor whose places follow no layout, a codec that is not
        known, or a weight-dependent byte that the layout does not predict.
    """
    first = min(tensor.first for tensor in markers.tensors)
    stop = max(tensor.first + tensor.elements for tensor in markers.tensors)
    seen = find_markers((builds[0], builds[1]), markers.alphabet, first, stop)
    placed = place_tensors(markers.tensors, seen, first, builds[-1], known)
    layout = EngineLayout(kind, blob[0], builds[0].size, placed, blob[1])
    confirm(layout, builds, builds[-1], known)
    return layout


def place_tensors(
    tensors: tuple[MarkedTensor, ...], seen: Sightings, first: int, confirming: Blob, known: ReadWeight
) -> tuple[StoredTensor, ...]:
    """Float tensors from the sightings of their elements, which are counted from `first`; raises as `decode_float_engine`."""
    placed = place_copies(tensors, seen, first, MARKER_BITS)
    return tuple(_with_codec(tensor, placed[tensor.name], confirming, known) for tensor in tensors)


def place_copies(
    tensors: tuple[MarkedTensor, ...], seen: Sightings, first: int, width: int
) -> dict[str, dict[str, tuple[Piece, ...]]]:
    """Tensor -> copy -> pieces, of elements of `width` bits that are counted from `first`.

    Raises DecodeRefused for elements that are nowhere or in too many places, or whose places follow no layout.
    """
    _check_all_seen(seen, tensors, first)
    return {tensor.name: _place(tensor, seen, first, width) for tensor in tensors}


def _check_all_seen(seen: Sightings, tensors: tuple[MarkedTensor, ...], first: int) -> None:
    """Every element is somewhere, and in two places at the most."""
    faults = []
    for tensor in tensors:
        lowest, _ = _tables(tensor, seen, first)
        if lowest.min() == NOT_FOUND:
            missing = lowest == NOT_FOUND
            row, col = np.unravel_index(int(np.argmax(missing)), missing.shape)
            count = int(np.count_nonzero(missing))
            faults.append(f"{tensor.name}: {count} of {tensor.elements} elements, first [{row}, {col}]")
    if faults:
        raise DecodeRefused("elements that are stored nowhere: " + "; ".join(faults))
    places = seen.lowest.size
    if seen.highest is not seen.lowest:
        places += int(np.count_nonzero(seen.lowest != seen.highest))
    if seen.hits != places:
        raise DecodeRefused(
            "elements that are stored more than twice", expected=f"{places} stored elements", found=seen.hits
        )


def _tables(tensor: MarkedTensor, seen: Sightings, first: int) -> tuple[Int64, Int64]:
    """Views of the lowest and the highest places; one view where no element of the engine is stored twice."""
    span = slice(tensor.first - first, tensor.first - first + tensor.elements)
    lowest = seen.lowest[span].reshape(tensor.grid)
    return lowest, lowest if seen.highest is seen.lowest else seen.highest[span].reshape(tensor.grid)


def _place(tensor: MarkedTensor, seen: Sightings, first: int, width: int) -> dict[str, tuple[Piece, ...]]:
    lowest, highest = _tables(tensor, seen, first)
    try:
        return _fit_copies(tensor, lowest, highest, width)
    except FitRefused as error:
        raise DecodeRefused(f"no layout describes where it is stored: {error}", where=tensor.name) from None


def _fit_copies(tensor: MarkedTensor, lowest: Int64, highest: Int64, width: int) -> dict[str, tuple[Piece, ...]]:
    """The complete copy and, for rows that are stored twice, the other one; pieces of the markers' own bits."""
    if lowest is highest:
        return {DECODE: fit(lowest, width)}
    twice = np.fromiter((np.count_nonzero(a != b) for a, b in zip(lowest, highest, strict=True)), np.int64, len(lowest))
    if not twice.any():
        return {DECODE: fit(lowest, width)}
    partly = (twice > 0) & (twice < tensor.grid[1])
    if partly.any():
        raise DecodeRefused("a row that is stored twice in part", where=f"{tensor.name}[{int(np.argmax(partly))}]")
    runs = _runs(twice > 0)
    if len(runs) > MAX_RUNS:
        raise DecodeRefused("too many separate runs of copied rows", where=tensor.name, found=len(runs))
    complete, other = simplest_copies(len(runs), lambda choice: _split(lowest, highest, runs, width, choice))
    return {DECODE: complete, PREFILL: other}


def _runs(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Maximal ranges of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]])))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def _split(lowest: Int64, highest: Int64, runs: list[tuple[int, int]], width: int, choice: tuple[bool, ...]) -> Copies:
    """The fit in which the complete copy takes the higher places of the chosen runs and the lower ones elsewhere.

    The tables are changed for the while: rows of a run that take the higher places are exchanged.
    """
    exchanged = [run for run, high in zip(runs, choice, strict=True) if high]
    _exchange(lowest, highest, exchanged)
    try:
        rest = [
            Piece(piece.row + start, piece.col, piece.layout)
            for start, stop in runs
            for piece in fit(highest[start:stop], width)
        ]
        return [fit(lowest, width), tuple(rest)]
    finally:
        _exchange(lowest, highest, exchanged)


def _exchange(lowest: Int64, highest: Int64, runs: list[tuple[int, int]]) -> None:
    for start, stop in runs:
        for row in range(start, stop):
            low = lowest[row].copy()
            lowest[row] = highest[row]
            highest[row] = low


def _with_codec(
    tensor: MarkedTensor, copies: dict[str, tuple[Piece, ...]], confirming: Blob, known: ReadWeight
) -> StoredTensor:
    """The first codec under which the complete copy of the confirming build holds the known weights."""
    rows = slice(0, min(SAMPLE_ROWS, tensor.grid[0]))
    weights = known(tensor.name, rows)
    shifts = CODEC_SHIFTS[tensor.form]
    for name, shift in shifts.items():
        try:
            stored = _as_codec(tensor, copies, name, 8 * shift)
            found = read_encoded(confirming, stored, rows=rows).raw
        except LayoutError:  # under this codec the elements would overlap or leave the blob
            continue
        if np.array_equal(found, codec(name).encode(weights)):
            return stored
    raise DecodeRefused("no codec explains the confirming build", where=tensor.name, expected=" or ".join(shifts))


def _as_codec(tensor: MarkedTensor, copies: dict[str, tuple[Piece, ...]], name: str, shift: int) -> StoredTensor:
    width = codec(name).width
    planes = {
        copy: Plane(
            tuple(replace(p, layout=replace(p.layout, base=p.layout.base + shift, width=width)) for p in pieces)
        )
        for copy, pieces in copies.items()
    }
    return StoredTensor(tensor.name, tensor.grid, name, tuple(Copy(copy, (plane,)) for copy, plane in planes.items()))
