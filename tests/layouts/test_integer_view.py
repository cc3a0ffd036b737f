"""4-bit planes and scale entries in a blob, against an oracle that moves one bit at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece
from layouts.encoding import Encoded
from layouts.errors import LayoutError
from layouts.marking import mark_tensor
from layouts.scales import Scales
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from layouts.view import read_encoded, read_plane, read_tensor, write_tensor
from tests.helpers.integers import integer_engines, published, random_encoded
from tests.helpers.layouts import layouts

Bits = npt.NDArray[np.uint8]


def bits_of(blob: npt.NDArray[np.uint8]) -> Bits:
    return np.unpackbits(blob, bitorder="little")


def write_bits(bits: Bits, plane: Plane, fields: npt.NDArray[np.unsignedinteger], first_row: int) -> None:
    """The oracle: every bit of every element to its own address."""
    for row in range(first_row, first_row + len(fields)):
        if any(start <= row < stop for start, stop in plane.rows):
            at = plane.addresses(row, row + 1)[0]
            for bit in range(plane.width):
                bits[at + bit] = (fields[row - first_row] >> bit) & 1


def oracle(blob: npt.NDArray[np.uint8], stored: StoredTensor, encoded: Encoded, first_row: int) -> Bits:
    bits = bits_of(blob)
    q = encoded.raw.astype(np.int64)
    for copy in stored.copies:
        if stored.codec == "s8":
            write_bits(bits, copy.planes[0], q & 15, first_row)
            write_bits(bits, copy.planes[1], (q >> 4) + 8 & 15, first_row)
        else:
            write_bits(bits, copy.planes[0], q + 8 & 15, first_row)
        assert copy.entries is not None and encoded.entries is not None
        write_bits(bits, copy.entries, encoded.entries.astype(np.int64), first_row)
    return bits


@settings(max_examples=150, deadline=None)
@given(integer_engines(), st.data())
def test_written_bits_are_the_oracles_and_no_other_changes(engine: EngineLayout, data: st.DataObject) -> None:
    blob = np.random.default_rng(1).integers(0, 256, engine.blob_bytes, np.uint8)
    mask = np.zeros(engine.blob_bytes, np.uint8)
    before, written = blob.copy(), bits_of(blob)
    for stored in engine.tensors:
        start = data.draw(st.integers(0, stored.shape[0] - 1))
        encoded = random_encoded(stored, data.draw(st.integers(1, stored.shape[0] - start)), 2)
        written = oracle(np.packbits(written, bitorder="little"), stored, encoded, start)
        write_tensor(blob, stored, encoded, start)
        assert np.array_equal(bits_of(blob), written)
        check_reads(blob, stored, encoded, start)
        mark_tensor(mask, stored)
    assert not ((blob ^ before) & ~mask).any()


def check_reads(blob: npt.NDArray[np.uint8], stored: StoredTensor, encoded: Encoded, start: int) -> None:
    assert encoded.entries is not None
    for copy in stored.copies:
        for first, stop in copy.rows:
            first, stop = max(first, start), min(stop, start + len(encoded.raw))
            if first < stop:
                found = read_encoded(blob, stored, copy.name, slice(first, stop))
                assert np.array_equal(found.raw, encoded.raw[first - start : stop - start])
                assert found.entries is not None
                assert np.array_equal(found.entries, encoded.entries[first - start : stop - start])


@settings(max_examples=150, deadline=None)
@given(layouts(4, grain=4), st.data())
def test_any_nibbles_read_as_the_oracle_reads(layout: Layout, data: st.DataObject) -> None:
    """Pairs along rows, elements 12 bits apart, lines that begin in the middle of a byte."""
    blob = np.random.default_rng(3).integers(0, 256, layout.extent[1] // 8 + 1, np.uint8)
    at = layout.expand()
    expected = (blob[at // 8] >> (at % 8)) & 15
    start = data.draw(st.integers(0, layout.shape[0]))
    stop = data.draw(st.integers(start, layout.shape[0]))
    found = read_plane(blob, Plane((Piece(0, 0, layout),)), layout.shape, slice(start, stop))
    assert np.array_equal(found, expected[start:stop])


@settings(max_examples=100, deadline=None)
@given(layouts(4, grain=4), st.integers(-20, 60), st.integers(0, 80))
def test_marks_are_the_bits_that_are_owned(layout: Layout, start: int, size: int) -> None:
    far = Layout((layout.shape[0], 1), 1 << 30, (Digit(layout.shape[0], 16),), (), 16)
    planes = (Plane((Piece(0, 0, layout),), bias=8),)
    copy = Copy("decode", planes, Plane((Piece(0, 0, far),)))
    stored = StoredTensor("w", layout.shape, "s4", (copy,), Scales("bf16", layout.shape[1], 7.0, False))
    whole = np.zeros(20 + max(layout.extent[1] // 8 + 1, start + size, 0), np.uint8)
    for at in layout.expand().ravel():
        whole[20 + at // 8] |= 15 << (at % 8)
    part = np.zeros(size, np.uint8)
    mark_tensor(part, stored, start)
    assert np.array_equal(part, whole[20 + start : 20 + start + size])


@pytest.mark.parametrize("kind", ["s8", "s4"])
@pytest.mark.parametrize("shape", [(1, 36), (15, 37), (17, 255), (31, 257), (33, 36), (70, 600)])
def test_unused_slots_of_the_published_layout_stay_zero(kind: str, shape: tuple[int, int]) -> None:
    stored = published("w", shape, kind, 7)
    size = max(layout.extent[1] for layout in stored.layouts()) // 8 + 100
    blob, mask = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    encoded = random_encoded(stored, shape[0], 4)
    write_tensor(blob, stored, encoded)
    mark_tensor(mask, stored)
    assert not (blob & ~mask).any()
    assert np.array_equal(bits_of(blob), oracle(np.zeros(size, np.uint8), stored, encoded, 0))


def test_published_bytes() -> None:
    """Chunk 0 of row 1 of an s8 matrix of 36 columns, and its entry, at the bytes that the facts name."""
    stored = published("w", (32, 36))
    blob = np.zeros(16 * 72 + 128, np.uint8)
    raw = np.zeros((32, 36), np.uint8)
    raw[1, :4] = np.array([1, -2, 127, -128], np.int8).view(np.uint8)
    entries = np.zeros((32, 1), np.uint32)
    entries[1] = 0x3C014000
    write_tensor(blob, stored, Encoded(raw, entries))
    assert blob[72:75].tolist() == [0xE1, 0x0F, 0]
    assert blob[90:93].tolist() == [0x78, 0x0F, 0x88]
    assert blob[16 * 72 + 4 : 16 * 72 + 8].tobytes().hex() == "0040013c"
    assert read_tensor(blob, stored)[1, :4].tolist() == [0x81 / 2**14, -0x81 / 2**13, 127 * 0x81 / 2**14, -0x81 / 2**7]


S4 = published("w", (3, 40), "s4")
GOOD = random_encoded(S4, 3, 0)


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (Encoded(GOOD.raw), "no scale entries"),
        (Encoded(GOOD.raw.astype(np.int8), GOOD.entries), "not stored integers"),
        (Encoded(GOOD.raw, GOOD.raw), "not scale entries"),
        (Encoded(GOOD.raw, np.zeros((3, 2), np.uint16)), "wrong shape"),
        (Encoded(GOOD.raw, np.zeros((2, 1), np.uint16)), "another number of rows"),
    ],
)
def test_refusals_write_nothing(encoded: Encoded, reason: str) -> None:
    blob = np.zeros(4000, np.uint8)
    with pytest.raises(LayoutError, match=reason):
        write_tensor(blob, S4, encoded)
    assert not blob.any()


def test_addresses_between_nibbles_are_refused() -> None:
    plane = Plane((Piece(0, 0, Layout((1, 8), 2, (), (Digit(8, 4),), 4)),))
    with pytest.raises(LayoutError, match="not aligned to 4 bits"):
        read_plane(np.zeros(9, np.uint8), plane, (1, 8))
