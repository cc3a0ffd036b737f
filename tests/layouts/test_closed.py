"""Absent elements, bias entries, scale factors and orders of axes: write, read, read back, mark, compare, sidecar."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece
from layouts.bias import Bias
from layouts.compare import compare_tensor, faults_of, known_bias
from layouts.confirm import check_explained, check_known
from layouts.copies import Copy, Plane, Rect
from layouts.encoding import Encoded, encode_rows
from layouts.errors import DecodeRefused, LayoutError
from layouts.marking import mark_tensor
from layouts.scales import Scales
from layouts.sidecar import dump_layout, load_layout
from layouts.stored import EngineLayout, StoredTensor, from_matrix, to_matrix
from layouts.view import read_encoded, read_tensor, write_tensor
from pipeline.errors import VerifyError
from pipeline.refit.readback import read_back
from tests.helpers.closed import Arrays, arrays_of, closed_engines, reader

Bytes = npt.NDArray[np.uint8]


def filled(engine: EngineLayout, arrays: Arrays, seed: int) -> tuple[Bytes, dict[str, Encoded]]:
    """A blob of noise with the weights written into it, by ranges of rows."""
    blob = np.random.default_rng(seed).integers(0, 256, engine.blob_bytes, np.uint8)
    known, whole = reader(engine, arrays), {}
    for stored in engine.tensors:
        half = stored.shape[0] // 2
        for rows in (slice(0, half), slice(half, stored.shape[0])) if half else (slice(0, stored.shape[0]),):
            write_tensor(blob, stored, encoded(stored, known, rows), rows.start)
        whole[stored.name] = encoded(stored, known, slice(0, stored.shape[0]))
    return blob, whole


def encoded(stored: StoredTensor, known: object, rows: slice) -> Encoded:
    bias = known_bias(stored, known, rows)  # type: ignore[arg-type]
    return encode_rows(stored, known(stored.name, rows), bias=bias, first_row=rows.start)  # type: ignore[operator]


@settings(max_examples=50, deadline=None)
@given(closed_engines(), st.integers(0, 1 << 20))
def test_what_is_written_is_read_and_nothing_else_moves(engine: EngineLayout, seed: int) -> None:
    before = np.random.default_rng(seed).integers(0, 256, engine.blob_bytes, np.uint8)
    blob, whole = filled(engine, arrays_of(engine, seed), seed)
    mask = np.zeros(engine.blob_bytes, np.uint8)
    for stored in engine.tensors:
        mark_tensor(mask, stored)
        read_back(blob, stored, whole[stored.name], 0, Path("x"))
        for copy in stored.copies:
            for start, stop in copy.rows:
                found, intended = read_encoded(blob, stored, copy.name, slice(start, stop)), whole[stored.name]
                present = copy.present(start, stop)
                assert np.array_equal(found.raw, np.where(present, intended.raw[start:stop], 0))
                assert not read_tensor(blob, stored, copy.name, slice(start, stop))[~present].any()
                for mine, theirs in ((found.entries, intended.entries), (found.bias, intended.bias)):
                    assert (mine is None) == (theirs is None)
                    assert mine is None or theirs is None or np.array_equal(mine, theirs[start:stop])
    assert not ((blob ^ before) & ~mask).any()


@settings(max_examples=50, deadline=None)
@given(closed_engines(), st.integers(0, 1 << 20), st.data())
def test_every_owned_bit_is_read_back_and_confirmed(engine: EngineLayout, seed: int, data: st.DataObject) -> None:
    """One flipped bit is found by the check that goes by addresses, and, of entries, by the confirmation."""
    arrays = arrays_of(engine, seed)
    blob, whole = filled(engine, arrays, seed)
    assert set(check_known(engine, blob, reader(engine, arrays)).values()) == {0}
    stored = data.draw(st.sampled_from(engine.tensors))
    mask = np.zeros(engine.blob_bytes, np.uint8)
    mark_tensor(mask, stored)
    byte = data.draw(st.sampled_from(np.flatnonzero(mask).tolist()))
    blob[byte] ^= mask[byte]
    with pytest.raises(VerifyError, match="reads back otherwise"):
        read_back(blob, stored, whole[stored.name], 0, Path("x"))
    beside = [plane for copy in stored.copies for plane in (copy.entries, copy.bias) if plane is not None]
    if any(byte in plane.addresses(*rows) // 8 for plane in beside for rows in plane.rows):
        with pytest.raises(DecodeRefused, match=r"scale entries|bias entries"):
            check_known(engine, blob, reader(engine, arrays))


@settings(max_examples=50, deadline=None)
@given(closed_engines(), st.integers(0, 1 << 20))
def test_absent_elements_are_nobodys(engine: EngineLayout, seed: int) -> None:
    """Whatever the weights say of them, the blob is the same and is confirmed; unless a zero point is made up for them."""
    arrays = arrays_of(engine, seed)
    blob, _ = filled(engine, arrays, seed)
    assume(all(not copy.rows[1:] for stored in engine.tensors for copy in stored.copies))
    for stored in engine.tensors:
        moved = to_matrix(stored, arrays[stored.name]).copy()
        gone = ~stored.copies[0].present(0, stored.shape[0])
        for copy in stored.copies[1:]:
            (start, stop) = copy.rows[0]
            gone[start:stop] &= ~copy.present(start, stop)
        extreme = np.abs(moved).max(axis=1, keepdims=True)
        moved[gone] = (np.sign(moved + 0.1) * extreme / 2)[np.nonzero(gone)[0], 0]
        keeps = np.abs(np.where(gone, 0, moved)).max(axis=1, keepdims=True) == extreme
        arrays[stored.name] = from_matrix(stored, np.where(keeps, moved, to_matrix(stored, arrays[stored.name])))
    assert np.array_equal(blob, filled(engine, arrays, seed)[0])
    check_explained(engine, [blob, filled(engine, arrays_of(engine, seed + 1), seed)[0]])


@settings(max_examples=50, deadline=None)
@given(closed_engines())
def test_sidecar_round_trip(engine: EngineLayout) -> None:
    text = dump_layout(engine)
    assert load_layout(text) == engine
    assert dump_layout(load_layout(text)) == text


@settings(max_examples=50, deadline=None)
@given(closed_engines(), st.integers(0, 100))
def test_matrices_are_transposed_arrays(engine: EngineLayout, seed: int) -> None:
    for stored in engine.tensors:
        array = np.random.default_rng(seed).normal(size=stored.source_shape)
        matrix = to_matrix(stored, array)
        assert matrix.shape == stored.shape
        assert np.array_equal(from_matrix(stored, matrix), array)
        assert stored.order
        index = [int(i) for i in np.unravel_index(seed % array.size, array.shape)]
        row = index[stored.order[0]]
        col = 0
        for axis in stored.order[1:]:
            col = col * stored.dims[axis] + index[axis]
        assert matrix[row, col] == array[tuple(index)]


LINES = Layout((4, 6), 0, (Digit(4, 48),), (Digit(6, 8),), 8)
ENTRIES = Plane((Piece(0, 0, Layout((4, 1), 192, (Digit(4, 32),), (), 32)),))
BIASES = Plane((Piece(0, 0, Layout((4, 1), 320, (Digit(4, 32),), (), 32)),))
RULE = Scales("fp32", 6, 127.5, True, 0.5, 1e-10)


def tensor(**changes: object) -> StoredTensor:
    copy = Copy("decode", (Plane((Piece(0, 0, LINES),)),), ENTRIES, BIASES)
    fields = {key: changes.pop(key) for key in ("entries", "bias", "absent", "planes") if key in changes}
    where = fields if "copies" not in changes else {}
    stored = {"scales": RULE, "bias": Bias("b", "fp32", 0.5, 3), "copies": (replace(copy, **where),)} | changes
    return StoredTensor("w", (4, 6), "s8", **stored)  # type: ignore[arg-type]


HALF = Plane((Piece(0, 0, Layout((4, 3), 0, (Digit(4, 24),), (Digit(3, 8),), 8)),))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"planes": (HALF,), "absent": (Rect(0, 4, 4, 2),)}, r"decode: \[0, 3\]: pieces leave columns out"),
        ({"planes": (HALF,), "absent": (Rect(0, 2, 4, 4),)}, r"decode: \[0, 2\]: pieces of one plane overlap"),
        ({"planes": (HALF,), "absent": (Rect(0, 3, 3, 3),)}, r"decode: \[3, 3\]: pieces leave columns out"),
        ({"planes": (HALF,)}, r"w: decode: plane and tensor differ in shape \(expected \[4, 6\], found \[4, 3\]\)"),
        ({"absent": (Rect(4, 0, 1, 6),)}, "scale entries and planes of one copy hold different rows"),
        ({"bias": None}, "w: decode: bias entries without a bias, or a bias without entries"),
        ({"bias": HALF}, "decode: bias entries of another shape|differ in width"),
        ({"dims": (6, 4)}, "w: not a permutation of the axes"),
        ({"dims": (6, 4), "order": (0, 1)}, r"w: axes do not give the shape \(expected \[4, 6\], found \[6, 4\]"),
        ({"dims": (4, 5), "order": (0, 1)}, "w: axes do not give the shape"),
        ({"dims": (4, 6), "order": (0, 0)}, "w: not a permutation of the axes"),
        ({"scales": Scales("fp32", 6, 127.5, False, 0.5), "order": (1,), "dims": ()}, "w: not a permutation"),
    ],
)
def test_refusals(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        tensor(**changes)


def test_a_bias_needs_one_scale_for_the_row() -> None:
    wide = Plane((Piece(0, 0, Layout((4, 2), 192, (Digit(4, 64),), (Digit(2, 32),), 32)),))
    assert tensor(entries=wide, scales=replace(RULE, group=3)).scales == replace(RULE, group=3)
    with pytest.raises(LayoutError, match="w: bias entries need one scale for the row"):
        tensor(entries=wide, scales=replace(RULE, group=3, shared=False))


def test_copies_of_a_zero_point_lack_the_same() -> None:
    far = Plane((Piece(0, 0, replace(HALF.pieces[0].layout, base=1000)),))
    other = [
        Plane((replace(p.pieces[0], layout=replace(p.pieces[0].layout, base=at)),))
        for p, at in ((ENTRIES, 2000), (BIASES, 3000))
    ]
    first = Copy("a", (Plane((Piece(0, 0, LINES),)),), ENTRIES, BIASES)
    second = Copy("b", (far,), other[0], other[1], (Rect(0, 3, 4, 3),))
    plain = Bias("b", "int32", 1.0, 0)
    assert StoredTensor("w", (4, 6), "s8", (first, second), RULE, "", plain).copy("b").present(1, 2).sum() == 3
    with pytest.raises(LayoutError, match="w: b: copies lack different elements"):
        StoredTensor("w", (4, 6), "s8", (first, second), RULE, "", replace(plain, zero_point=1))


@pytest.mark.parametrize("what", ["entries", "bias"])
def test_an_entry_may_not_lie_in_a_plane(what: str) -> None:
    inside = Plane((Piece(0, 0, Layout((4, 1), 160, (Digit(4, 32),), (), 32)),))
    with pytest.raises(LayoutError, match="two elements in one place"):
        EngineLayout("model", "w", 100, (tensor(**{what: inside}),))
    assert EngineLayout("model", "w", 100, (tensor(),)).kind == "model"


def test_a_correction_under_a_zero_point_is_one_in_the_bias_entry() -> None:
    """The entry answers for the integers that are stored."""
    stored = replace(tensor(), shape=(4, 6))
    engine = EngineLayout("model", "w", 100, (stored,))
    values = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    arrays = {"w": values, "b": np.ones(4, np.float32)}
    blob = np.zeros(100, np.uint8)
    fresh = encode_rows(stored, values, bias=arrays["b"])
    raw = fresh.raw.copy()
    raw[2, 3] += 1
    stale = replace(fresh, raw=raw)
    write_tensor(blob, stored, stale)
    found = compare_tensor(stored, blob, reader(engine, arrays))
    assert (found["decode"].corrected, found["decode"].bias) == (1, 1)
    assert any("1 bias entries, first [2, 0]" in fault for fault in faults_of(stored, found))


def test_shapes_of_sources_and_biases() -> None:
    stored = tensor()
    for array in (np.zeros((6, 4)), np.zeros(24)):
        with pytest.raises(LayoutError, match=r"w: source of another shape \(expected \[4, 6\]"):
            to_matrix(stored, array)
    with pytest.raises(LayoutError, match="w: matrix of another shape"):
        from_matrix(stored, np.zeros((6, 4)))
    values = np.ones((4, 6), np.float32)
    for bias in (None, np.zeros(3, np.float32)):
        with pytest.raises(LayoutError, match=r"w: bias of another shape \(expected \[4\] of b"):
            encode_rows(stored, values, bias=bias)
    with pytest.raises(LayoutError, match="w: no bias entries to write"):
        write_tensor(
            np.zeros(100, np.uint8),
            stored,
            replace(encode_rows(stored, values, bias=np.zeros(4, np.float32)), bias=None),
        )
