"""Strided reading and writing against plain index arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece, parse_layout
from layouts.codecs import codec
from layouts.encoding import Encoded, encode_rows
from layouts.errors import LayoutError
from layouts.marking import mark_tensor
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from layouts.view import read_encoded, read_plane, read_tensor, write_tensor
from tests.helpers.layouts import engines, layouts, one_copy

Bytes = npt.NDArray[np.uint8]


def gather(blob: Bytes, layout: Layout) -> npt.NDArray[np.uint64]:
    """Byte by byte through an index array."""
    total = np.zeros(layout.shape, np.uint64)
    for i in range(layout.width // 8):
        total |= blob[layout.expand() // 8 + i].astype(np.uint64) << np.uint64(8 * i)
    return total


def noise(size: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def random_raw(stored: StoredTensor, rows: int, seed: int) -> npt.NDArray[np.unsignedinteger]:
    dtype = codec(stored.codec).raw_dtype
    return np.random.default_rng(seed).integers(0, 1 << 16, (rows, stored.shape[1]), dtype)


@given(layouts(grain=8), st.data())
def test_read_equals_index_array_on_any_rows(layout: Layout, data: st.DataObject) -> None:
    layout = Layout(layout.shape, layout.base // 8 * 8, layout.rows, layout.cols, layout.width)
    blob = noise(layout.extent[1] // 8 + 3)
    plane = Plane((Piece(0, 0, layout),))
    expected = gather(blob, layout)
    start = data.draw(st.integers(0, layout.shape[0]))
    stop = data.draw(st.integers(start, layout.shape[0]))
    found = read_plane(blob, plane, layout.shape, slice(start, stop))
    assert found.dtype == f"<u{layout.width // 8}"
    assert np.array_equal(found, expected[start:stop])


@settings(max_examples=60)
@given(engines(), st.data())
def test_write_then_read_touches_nothing_else(engine: EngineLayout, data: st.DataObject) -> None:
    before = noise(engine.blob_bytes, 1)
    blob, mask = before.copy(), np.zeros(engine.blob_bytes, np.uint8)
    for stored in engine.tensors:
        start = data.draw(st.integers(0, stored.shape[0] - 1))
        raw = random_raw(stored, data.draw(st.integers(1, stored.shape[0] - start)), 2)
        write_tensor(blob, stored, Encoded(raw), start)
        for copy in stored.copies:
            for first, stop in copy.rows:
                first, stop = max(first, start), min(stop, start + len(raw))
                if first < stop:
                    found = read_encoded(blob, stored, copy.name, slice(first, stop)).raw
                    assert np.array_equal(found, raw[first - start : stop - start])
        mark_tensor(mask, stored)
    assert np.array_equal(blob[mask == 0], before[mask == 0])


def test_values_at_an_odd_byte() -> None:
    stored = one_copy("w", Layout((2, 3), 8, (Digit(2, 16),), (Digit(3, 32),), 16))
    blob = np.zeros(20, np.uint8)
    write_tensor(blob, stored, encode_rows(stored, np.array([[1, 2, 3], [-1, -2, -3]], np.float32)))
    assert blob.tobytes().hex() == "00803f80bf004000c0404040c0" + "00" * 7
    assert read_tensor(blob, stored).tolist() == [[1, 2, 3], [-1, -2, -3]]


def test_fp32_engine_layout_reads_at_the_measured_bytes() -> None:
    layout = parse_layout("[512,128]  rows (32,16):(32,132096)  cols 128:1024  width 32  base 0")
    values = np.arange(layout.extent[1] // 32, dtype=np.float32)
    found = read_tensor(values.view(np.uint8), one_copy("w", layout, "fp32"))
    assert found[0, 1] == 32
    assert found[31, 0] == 31
    assert found[32, 0] == 16512 // 4
    assert found[511, 127] == 31 + 32 * 127 + 15 * 16512 // 4


@pytest.mark.parametrize(("rows", "cols", "line"), [(150, 1024, 64), (130, 512, 16), (64, 1024, 64), (9, 2048, 4)])
def test_rows_of_a_crowded_pitch(rows: int, cols: int, line: int) -> None:
    """Power-of-two rows go through a buffer, the last block and short blocks too."""
    digits = (Digit(line, 16), Digit(-(-rows // line), 16 * line * (cols + 1)))
    stored = one_copy("w", Layout((rows, cols), 8, digits, (Digit(cols, 16 * line),), 16))
    layout = stored.copies[0].planes[0].pieces[0].layout
    raw = random_raw(stored, rows, 7)
    blob = np.zeros(layout.extent[1] // 8, np.uint8)
    write_tensor(blob, stored, Encoded(raw))
    assert np.array_equal(gather(blob, layout), raw)


def test_pieces_split_rows_and_columns() -> None:
    quarters = [Layout((3, 4), 8 * (1 + 40 * i), (Digit(3, 16),), (Digit(4, 64),), 16) for i in range(4)]
    places = ((0, 0), (0, 4), (3, 0), (3, 4))
    pieces = tuple(Piece(row, col, quarter) for (row, col), quarter in zip(places, quarters, strict=True))
    stored = StoredTensor("w", (6, 8), "bf16", (Copy("decode", (Plane(pieces),)),))
    raw = random_raw(stored, 6, 3)
    blob = np.zeros(170, np.uint8)
    write_tensor(blob, stored, Encoded(raw[:2]), 0)
    write_tensor(blob, stored, Encoded(raw[2:]), 2)
    assert np.array_equal(read_encoded(blob, stored).raw, raw)
    assert np.array_equal(gather(blob, quarters[3]), raw[3:, 4:])


def test_two_byte_planes_make_one_integer() -> None:
    """A 16-bit integer as a low byte and a high byte stored with bias 128."""
    low = Plane((Piece(0, 0, Layout((2, 4), 0, (Digit(2, 64),), (Digit(4, 8),), 8)),))
    high = Plane((Piece(0, 0, Layout((2, 4), 32, (Digit(2, 64),), (Digit(4, 8),), 8)),), low_bit=8, bias=128)
    stored = StoredTensor("w", (2, 4), "bf16", (Copy("decode", (low, high)),))
    raw = np.array([[0x0102, 0x7FFF, 0x8000, 0xFFFE], [0, 1, 256, 0x80]], np.uint16)
    blob = np.zeros(16, np.uint8)
    write_tensor(blob, stored, Encoded(raw))
    assert blob[:8].tolist() == [0x02, 0xFF, 0x00, 0xFE, 0x81, 0xFF, 0x00, 0x7F]
    assert np.array_equal(read_encoded(blob, stored).raw, raw)


def test_fields_that_are_narrower_than_what_holds_them() -> None:
    """Four bits of a 16-bit integer in a byte of their own, with a bias that they alone could not hold."""
    planes = tuple(
        Plane((Piece(0, 0, Layout((1, 3), 64 * i, (), (Digit(3, 8),), 8)),), low_bit=4 * i, bits=4, bias=0x30 + 64 * i)
        for i in range(4)
    )
    stored = StoredTensor("w", (1, 3), "bf16", (Copy("decode", planes),))
    raw = np.array([[0x1234, 0xFFFF, 0xC0DE]], np.uint16)
    blob = np.zeros(32, np.uint8)
    write_tensor(blob, stored, Encoded(raw))
    assert blob.reshape(4, 8)[:, 0].tolist() == [0x34, 0x73, 0xB2, 0xF1]
    assert blob.reshape(4, 8)[:, 1].tolist() == [0x3F, 0x7F, 0xBF, 0xFF]
    assert np.array_equal(read_encoded(blob, stored).raw, raw)


def test_memory_map_and_read_only(tmp_path) -> None:  # type: ignore[no-untyped-def]
    stored = one_copy("w", Layout((4, 5), 8, (Digit(4, 16),), (Digit(5, 64),), 16))
    (tmp_path / "blob").write_bytes(bytes(50))
    blob = np.memmap(tmp_path / "blob", np.uint8, "r+")
    raw = random_raw(stored, 4, 5)
    write_tensor(blob, stored, Encoded(raw))
    blob.flush()
    again = np.memmap(tmp_path / "blob", np.uint8, "r")
    assert np.array_equal(read_encoded(again, stored).raw, raw)
    with pytest.raises(ValueError, match="read-only"):
        write_tensor(again, stored, Encoded(raw))


STORED = one_copy("w", Layout((4, 5), 8, (Digit(4, 16),), (Digit(5, 64),), 16))


@pytest.mark.parametrize(
    ("raw", "start", "reason"),
    [
        (np.zeros((4, 5), np.float32), 0, "not stored integers"),
        (np.zeros((4, 4), np.uint16), 0, "wrong shape"),
        (np.zeros(5, np.uint16), 0, "wrong shape"),
        (np.zeros((2, 5), np.uint16), 3, "rows outside"),
        (np.zeros((2, 5), np.uint16), -1, "rows outside"),
    ],
)
def test_write_refusals(raw: npt.NDArray[np.unsignedinteger], start: int, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        write_tensor(np.zeros(60, np.uint8), STORED, Encoded(raw), start)


def test_short_blob_is_refused_before_anything_is_written() -> None:
    near, far = (Layout((1, 5), base, (), (Digit(5, 16),), 16) for base in (0, 8 * 30))
    copies = tuple(Copy(name, (Plane((Piece(0, 0, at),)),)) for name, at in (("decode", near), ("prefill", far)))
    blob = np.zeros(39, np.uint8)
    with pytest.raises(LayoutError, match="outside the blob"):
        write_tensor(blob, StoredTensor("w", (1, 5), "bf16", copies), Encoded(np.ones((1, 5), np.uint16)))
    assert not blob.any()


def test_read_refusals() -> None:
    blob = np.zeros(60, np.uint8)
    with pytest.raises(LayoutError, match="rows outside"):
        read_encoded(blob, STORED, rows=slice(2, 5))
    with pytest.raises(LayoutError, match="rows outside"):
        read_encoded(blob, STORED, rows=slice(0, 4, 2))
    with pytest.raises(LayoutError, match="no such copy"):
        read_encoded(blob, STORED, "prefill")
    half = Plane((Piece(2, 0, Layout((2, 5), 0, (Digit(2, 16),), (Digit(5, 64),), 16)),))
    with pytest.raises(LayoutError, match="rows are not stored"):
        read_plane(blob, half, (4, 5), slice(1, 3))
    with pytest.raises(LayoutError, match="differ in columns"):
        read_plane(blob, half, (4, 6), slice(2, 3))
    nibbles = Plane((Piece(0, 0, Layout((1, 8), 0, (), (Digit(8, 12),), 12)),))
    with pytest.raises(LayoutError, match="not whole bytes"):
        read_plane(blob, nibbles, (1, 8))
    crooked = Plane((Piece(0, 0, Layout((1, 3), 0, (), (Digit(3, 12),), 8)),))
    with pytest.raises(LayoutError, match="not aligned to 8 bits"):
        read_plane(blob, crooked, (1, 3))
