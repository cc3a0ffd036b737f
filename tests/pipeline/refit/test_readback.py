"""Reading back by address: every owned bit is looked at, and what is wrong has a name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece
from layouts.encoding import Encoded
from layouts.errors import LayoutError
from layouts.marking import mark_tensor
from layouts.stored import Copy, Plane, StoredTensor
from layouts.view import write_tensor
from pipeline.errors import VerifyError
from pipeline.refit import readback
from pipeline.refit.readback import read_back
from tests.helpers.integers import RULES, integer_tensors, published_copy, random_encoded
from tests.helpers.layouts import one_copy

FILE = Path("engine.axmodel")
NAME = "mlp.up_proj.weight"


def written(stored: StoredTensor, encoded: Encoded, first_row: int = 0) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    size = max(layout.extent[1] for layout in stored.layouts()) // 8 + 9
    blob = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    write_tensor(blob, stored, encoded, first_row)
    return blob


@settings(max_examples=60, deadline=None)
@given(integer_tensors(NAME), st.data())
def test_every_owned_bit_is_read_and_no_other(tensor: tuple[StoredTensor, int], data: st.DataObject) -> None:
    stored, _ = tensor
    encoded = random_encoded(stored, stored.shape[0], 1)
    blob = written(stored, encoded)
    read_back(blob, stored, encoded, 0, FILE)
    mask = np.zeros(blob.size, np.uint8)
    mark_tensor(mask, stored)
    bit = data.draw(st.integers(0, 8 * blob.size - 1))
    blob[bit // 8] ^= 1 << bit % 8
    if mask[bit // 8] >> (bit % 8) & 1:
        with pytest.raises(VerifyError, match=rf"^{FILE}: {re.escape(NAME)}\[\d+.* copy.*: reads back otherwise"):
            read_back(blob, stored, encoded, 0, FILE)
    else:
        read_back(blob, stored, encoded, 0, FILE)


def two_copies(kind: str) -> StoredTensor:
    """70 rows of 600 columns; rows 16 to 47 again."""
    first = published_copy("decode", (70, 600), kind, 5, RULES[kind])
    again = published_copy("prefill", (32, 600), kind, 200_000, RULES[kind], 16)
    return StoredTensor(NAME, (70, 600), kind, (first, again), RULES[kind])


def flip(blob: np.ndarray[tuple[int], np.dtype[np.uint8]], plane: Plane, row: int, col: int) -> None:
    at = int(plane.addresses(row, row + 1)[0, col])
    blob[at // 8] ^= 1 << at % 8


@pytest.mark.parametrize("kind", ["s8", "s4"])
@pytest.mark.parametrize("first_row", [0, 13])
def test_faults_name_tensor_row_copy_and_column_or_group(
    kind: str, first_row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readback, "GATHER_ELEMENTS", 6000)
    stored = two_copies(kind)
    encoded = random_encoded(stored, 70 - first_row, 2)
    group = 599 // RULES[kind].group
    for copy, row in (("decode", 69), ("prefill", 40)):
        blob = written(stored, encoded, first_row)
        flip(blob, stored.copy(copy).planes[-1], row, 599)
        where = re.escape(f"{NAME}[{row}, 599] {copy} copy: reads back otherwise")
        with pytest.raises(VerifyError, match=where):
            read_back(blob, stored, encoded, first_row, FILE)
        blob = written(stored, encoded, first_row)
        entries = stored.copy(copy).entries
        assert entries is not None
        flip(blob, entries, row, group)
        where = re.escape(f"{NAME}[{row}] {copy} copy, scale entry of group {group}: reads back otherwise")
        with pytest.raises(VerifyError, match=where):
            read_back(blob, stored, encoded, first_row, FILE)


@pytest.mark.parametrize("kind", ["s8", "s4"])
def test_a_stale_copy_is_found(kind: str) -> None:
    stored = two_copies(kind)
    encoded = random_encoded(stored, 70, 3)
    blob = written(stored, random_encoded(stored, 70, 4))
    write_tensor(blob, StoredTensor(NAME, stored.shape, kind, stored.copies[:1], stored.scales), encoded)
    with pytest.raises(VerifyError, match=r"mlp\.up_proj\.weight\[16, 0\] prefill copy"):
        read_back(blob, stored, encoded, 0, FILE)


@pytest.mark.parametrize("shift", [1, -1])
def test_entries_that_are_one_place_or_one_unit_off_are_found(shift: int) -> None:
    stored = two_copies("s8")
    encoded = random_encoded(stored, 70, 5)
    assert encoded.entries is not None
    for wrong in (np.roll(encoded.entries, shift, axis=0), encoded.entries + np.uint32(shift % (1 << 32))):
        blob = written(stored, Encoded(encoded.raw, wrong))
        with pytest.raises(VerifyError, match="scale entry of group 0"):
            read_back(blob, stored, encoded, 0, FILE)


def test_words_of_every_phase_and_addresses_between_nibbles() -> None:
    mixed = one_copy(NAME, Layout((3, 4), 24, (Digit(3, 200),), (Digit(4, 40),), 16))
    raw = np.random.default_rng(6).integers(0, 1 << 16, (3, 4), np.uint16)
    read_back(written(mixed, Encoded(raw)), mixed, Encoded(raw), 0, FILE)
    crooked = Plane((Piece(0, 0, Layout((1, 8), 2, (), (Digit(8, 4),), 4)),), bias=8)
    entries = Plane((Piece(0, 0, Layout((1, 1), 800, (), (), 16)),))
    stored = StoredTensor(NAME, (1, 8), "s4", (Copy("decode", (crooked,), entries),), RULES["s4"])
    with pytest.raises(LayoutError, match="not whole bytes"):
        read_back(np.zeros(200, np.uint8), stored, random_encoded(stored, 1, 7), 0, FILE)
