"""From marker builds to a confirmed layout of an integer engine, by weight blobs alone (docs/markers.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from layouts.algebra import Piece
from layouts.codecs import Float32
from layouts.codes import Code
from layouts.compare import ReadWeight
from layouts.confirm import check_explained, check_known
from layouts.decode import DECODE, PREFILL, place_tensors
from layouts.digits import Int64
from layouts.entry_places import FoundEntries, entry_tables, find_entries
from layouts.errors import DecodeRefused, FitRefused, LayoutError
from layouts.integer_markers import MarkedMatrix, scale_table
from layouts.markers import Alphabet, Blob, MarkedTensor, Sightings, number_tensors
from layouts.plane_places import NIBBLE, PlanePlaces, place_planes, plane_copies
from layouts.row_places import RowPlaces, copies_of, deduplicated
from layouts.scale_rules import Rule, find_rule, folded_values, group_order, with_rule
from layouts.scales import Scales
from layouts.sightings import check_sizes
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from layouts.vector_places import find_gains, find_vectors


@dataclass(frozen=True)
class IntegerMarkers:
    """What the marker builds of an integer engine hold.

    matrices : numbered by `number_matrices`
    vectors : numbered by `number_tensors`; bf16 values of `alphabet`
    gains : norm -> its length; 1 in every marker build, since a compiler may multiply them into matrices
    folds : matrix -> the gain that may be folded into it
    """

    code: Code
    matrices: tuple[MarkedMatrix, ...]
    vectors: tuple[MarkedTensor, ...]
    alphabet: Alphabet
    gains: Mapping[str, int]
    folds: Mapping[str, str]

    def values(self, name: str, build: int, rows: slice) -> Float32:
        """Rows of a tensor in a marker build, float32 `[rows, cols]`; a vector is one row."""
        if name in self.gains:
            return np.ones((1, self.gains[name]), np.float32)
        for matrix in self.matrices:
            if matrix.name == name:
                return matrix.values(build, rows.start, rows.stop)
        vector = next(tensor for tensor in self.vectors if tensor.name == name)
        bits = vector.values(self.alphabet, build % 2, 0, 1)
        values: Float32 = bits.view(ml_dtypes.bfloat16).astype(np.float32)[None]
        return values


def decode_integer_engine(
    kind: str, blob: tuple[str, int], builds: Sequence[Blob], markers: IntegerMarkers, known: ReadWeight
) -> EngineLayout:
    """Place every element of every tensor and every copy, every scale entry, every vector, and confirm.

    Parameters
    ----------
    kind : goes into the result
    blob : name of the weight blob, and its offset in the engine file
    builds : weight blobs of every marker build in order, then of the confirming build
    known : plain weights of the confirming build, gains included

    Raises
    ------
    DecodeRefused : builds that differ in size; an element, entry or vector that is nowhere or in too many places; a tensor whose
        places follow no layout; a scale rule that is not known; a byte of any build that the layout does not predict.
    """
    check_sizes(builds)
    marked, confirming = builds[: markers.code.builds], builds[-1]
    matrices = _matrices(marked, confirming, markers, known)
    folded = {tensor.folded for tensor in matrices if tensor.folded}
    vectors = _vectors(marked, confirming, markers, known, folded)
    try:
        layout = EngineLayout(kind, blob[0], builds[0].size, (*matrices, *vectors), blob[1])
    except LayoutError as error:
        raise DecodeRefused(f"what was found contradicts itself: {error}") from None
    check_explained(layout, builds)
    for build, data in enumerate(marked):
        _check_build(layout, build, data, markers)
    folds = {tensor.name: tensor.folded for tensor in matrices}
    check_known(layout, confirming, lambda name, rows: folded_values(known, name, folds.get(name, ""), rows))
    return layout


def _check_build(layout: EngineLayout, build: int, data: Blob, markers: IntegerMarkers) -> None:
    try:
        check_known(layout, data, lambda name, rows: markers.values(name, build, rows))
    except DecodeRefused as error:
        error.where = f"marker build {build}"
        raise


def _matrices(
    marked: Sequence[Blob], confirming: Blob, markers: IntegerMarkers, known: ReadWeight
) -> tuple[StoredTensor, ...]:
    placed = place_planes(marked, markers.code, markers.matrices)
    entries = find_entries(marked, markers.code, scale_table(markers.matrices, markers.code.builds))
    tensors, rules = [], []
    for matrix in markers.matrices:
        try:
            tensor, tables = _assemble(matrix, placed[matrix.name], entries)
            rule = find_rule(tensor, markers.folds.get(matrix.name, ""), confirming, known)
        except FitRefused as error:
            raise DecodeRefused(f"no layout describes where it is stored: {error}", where=matrix.name) from None
        tensors.append((tensor, tables))
        rules.append(rule)
    by_group = any(rule.shared is False for rule in rules)
    return tuple(
        _with_entries(
            tensor, tables, rule if rule.shared is not None else Rule(not by_group, rule.folded), confirming, known
        )
        for (tensor, tables), rule in zip(tensors, rules, strict=True)
    )


def _assemble(matrix: MarkedMatrix, planes: PlanePlaces, found: FoundEntries) -> tuple[StoredTensor, list[Int64]]:
    """The tensor with its entries in ascending order, and the tables of its entries."""
    held = [segment.copies for plane in planes for segment in plane]
    if not all(np.array_equal(held[0], other) for other in held[1:]):
        raise DecodeRefused("rows of which a part is stored twice and another once", where=matrix.name)
    group, tables = entry_tables(found, matrix, held[0])
    fields = [plane_copies(plane) for plane in planes]
    scales = Scales(found.entry, group, found.divisor, shared=matrix.code.codec == "s8")
    copies = tuple(
        Copy(name, tuple(_plane(matrix.code, index, pieces[at]) for index, pieces in enumerate(fields)), entries)
        for at, (name, entries) in enumerate(zip((DECODE, PREFILL), _entry_planes(tables, found.width), strict=False))
    )
    return StoredTensor(matrix.name, matrix.shape, matrix.code.codec, copies, scales), tables


def _plane(code: Code, index: int, pieces: tuple[Piece, ...]) -> Plane:
    low_bit, bias = code.planes[index]
    return Plane(pieces, low_bit, NIBBLE, bias)


def _entry_planes(tables: list[Int64], width: int) -> list[Plane]:
    places = [_row_places(table) for table in tables]
    found = copies_of(places[0], places[1] if len(places) > 1 else None, width, 8)
    return [Plane(pieces) for pieces in found]


def _row_places(table: Int64) -> RowPlaces:
    profiles, kind = np.unique(table - table[:, :1], axis=0, return_inverse=True)
    return deduplicated(table[:, 0], kind.ravel().astype(np.int32), list(profiles))


def _with_entries(
    stored: StoredTensor, tables: list[Int64], rule: Rule, confirming: Blob, known: ReadWeight
) -> StoredTensor:
    """The rule, and under a rule of groups each entry its group."""
    stored = with_rule(stored, rule)
    if rule.shared or stored.scales is None or stored.codec == "s4":
        return stored
    ordered = [table[:, group_order(stored, table, confirming, known)] for table in tables]
    planes = _entry_planes(ordered, stored.copies[0].entries.width if stored.copies[0].entries else 0)
    copies = tuple(replace(copy, entries=plane) for copy, plane in zip(stored.copies, planes, strict=True))
    return replace(stored, copies=copies)


def _vectors(
    marked: Sequence[Blob], confirming: Blob, markers: IntegerMarkers, known: ReadWeight, folded: set[str]
) -> tuple[StoredTensor, ...]:
    """Vectors by their words, and gains that are not folded by the values of the confirming build."""
    placed: tuple[StoredTensor, ...] = ()
    if markers.vectors:
        seen = find_vectors(marked, markers.alphabet, sum(vector.elements for vector in markers.vectors))
        placed = place_tensors(markers.vectors, seen, 0, confirming, known)
    places = find_gains(marked, confirming, {name: known(name, slice(0, 1)) for name in markers.gains})
    kept = [name for name in markers.gains if name not in folded]
    lost = [name for name in kept if not places[name]]
    if lost:
        raise DecodeRefused("norms that are neither stored nor folded: " + ", ".join(lost))
    numbered = number_tensors((name, (markers.gains[name],)) for name in kept)
    if not numbered:
        return placed
    lowest, highest = (
        np.concatenate([np.sort(np.stack(places[name]), axis=0)[which] for name in kept]) for which in (0, -1)
    )
    twice = np.count_nonzero(lowest != highest)
    once = lowest if not twice else highest
    return (*placed, *place_tensors(numbered, Sightings(lowest, once, lowest.size + int(twice)), 0, confirming, known))
