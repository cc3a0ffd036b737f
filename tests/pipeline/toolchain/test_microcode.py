"""Golden bytes of microcode version 1 (docs/microcode.md), written out by hand."""

from __future__ import annotations

import struct

import pytest

from layouts.algebra import Piece, parse_layout
from pipeline.errors import InternalError
from pipeline.toolchain.microcode import KIND_LAYER, Program, float_bits

FIRST = parse_layout("[3,5]  rows 3:16  cols 5:64  width 16  base 8")
LAST = parse_layout("[10,5]  rows (4,3):(16,-4096)  cols (2,3):(64,1000)  width 16  base 9000")


def program() -> Program:
    made = Program(KIND_LAYER, 7, 2, 9)
    a, b = made.register(5), made.register(13)
    weight = made.tensor("bf16", (13, 5), (Piece(0, 0, FIRST), Piece(3, 0, LAST)))
    made.emit("LOAD", a, 3)
    made.emit("NORM", a, b, weight, float_bits(1.5), 5)
    return made


def test_bytes_are_as_documented() -> None:
    header = b"RNEU" + struct.pack("<10I", 1, 64 + 8 + 32 + 2 * 128 + 2 * 48, 1, 7, 2, 9, 2, 1, 2, 2) + bytes(20)
    registers = bytes.fromhex("05000000 0d000000")
    tensor = struct.pack("<8I", 1, 13, 5, 0, 2, 0, 0, 0)
    first = struct.pack("<IIQII", 0, 3, 8, 1, 1) + struct.pack("<qIIqII", 16, 3, 0, 64, 5, 0)
    last = struct.pack("<IIQII", 3, 10, 9000, 2, 2)
    last += struct.pack("<qIIqIIqIIqII", 16, 4, 0, -4096, 3, 0, 64, 2, 0, 1000, 3, 0)
    load = struct.pack("<12I", 1, 0, 3, *[0] * 9)
    norm = struct.pack("<12I", 3, 0, 1, 0, 0x3FC00000, 5, *[0] * 6)
    pieces = first.ljust(128, b"\0") + last.ljust(128, b"\0")
    assert program().encode() == header + registers + tensor + pieces + load + norm


def test_pieces_that_it_cannot_describe() -> None:
    made = program()
    made.tensor("bf16", (3, 6), (Piece(0, 1, FIRST),))
    with pytest.raises(InternalError, match="cannot describe"):
        made.encode()
