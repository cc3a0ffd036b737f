"""Golden bytes of microcode version 2 (docs/microcode.md), written out by hand."""

from __future__ import annotations

import struct

import pytest

from layouts.algebra import Piece, parse_layout
from pipeline.errors import InternalError
from pipeline.toolchain.microcode import KIND_LAYER, Operand, Program, float_bits

FIRST = parse_layout("[3,5]  rows 3:16  cols 5:64  width 16  base 8")
LAST = parse_layout("[10,5]  rows (4,3):(16,-4096)  cols (2,3):(64,1000)  width 16  base 9000")


def program() -> Program:
    made = Program(KIND_LAYER, 7, 2, 9)
    a, b = made.register(5), made.register(13)
    weight = made.tensor(Operand(("bf16", ""), (13, 5), 0, ((Piece(0, 0, FIRST), Piece(3, 0, LAST)), (), ())))
    made.emit("LOAD", a, 3)
    made.emit("NORM", a, b, weight, float_bits(1.5), 5)
    return made


def test_bytes_are_as_documented() -> None:
    header = b"RNEU" + struct.pack("<10I", 2, 64 + 8 + 48 + 2 * 128 + 2 * 48, 1, 7, 2, 9, 2, 1, 2, 2) + bytes(20)
    registers = bytes.fromhex("05000000 0d000000")
    tensor = struct.pack("<12I", 1, 13, 5, 0, 0, 2, 0, 0, 0, 0, 0, 0)
    first = struct.pack("<IIQII", 0, 3, 8, 1, 1) + struct.pack("<qIIqII", 16, 3, 0, 64, 5, 0)
    last = struct.pack("<IIQII", 3, 10, 9000, 2, 2)
    last += struct.pack("<qIIqIIqIIqII", 16, 4, 0, -4096, 3, 0, 64, 2, 0, 1000, 3, 0)
    load = struct.pack("<12I", 1, 0, 3, *[0] * 9)
    norm = struct.pack("<12I", 3, 0, 1, 0, 0x3FC00000, 5, *[0] * 6)
    pieces = first.ljust(128, b"\0") + last.ljust(128, b"\0")
    assert program().encode() == header + registers + tensor + pieces + load + norm


FINE = parse_layout("[3,7]  rows 3:256  cols (6,2):(4,48)  width 4  base 4")
COARSE = parse_layout("[3,7]  rows 3:256  cols (6,2):(4,48)  width 4  base 28")
ENTRIES = parse_layout("[3,1]  rows 3:32  cols 1:0  width 32  base 800")


@pytest.mark.parametrize(("kind", "code"), [(("s8", "reciprocal"), 3), (("s4", "bf16"), 4), (("s4", "fp16"), 5)])
def test_fields_of_integer_tensors(kind: tuple[str, str], code: int) -> None:
    """Pieces are counted on from tensor to tensor; a field that is not there is (0, 0)."""
    made = Program(KIND_LAYER, 0, 1, 1)
    made.tensor(Operand(("fp32", ""), (3, 5), 0, ((Piece(0, 0, FIRST),), (), ())))
    second = (Piece(0, 0, COARSE),) if code == 3 else ()
    made.tensor(Operand(kind, (3, 7), 256, ((Piece(0, 0, FINE),), second, (Piece(0, 0, ENTRIES),))))
    data = made.encode()
    fields = (1, 1, 2, 1, 3, 1) if code == 3 else (1, 1, 0, 0, 2, 1)
    tensors = struct.pack("<12I", 2, 3, 5, 0, 0, 1, *[0] * 6) + struct.pack("<12I", code, 3, 7, 256, *fields, 0, 0)
    assert data[64 : 64 + 96] == tensors
    assert struct.unpack("<4I", data[28:44]) == (0, 2, 4 if code == 3 else 3, 0)
    fine = struct.pack("<IIQII", 0, 3, 4, 1, 2) + struct.pack("<qIIqIIqII", 256, 3, 0, 4, 6, 0, 48, 2, 0)
    entries = struct.pack("<IIQII", 0, 3, 800, 1, 0) + struct.pack("<qII", 32, 3, 0)
    assert data[160 + 128 : 160 + 256] == fine.ljust(128, b"\0")
    assert data[-128:] == entries.ljust(128, b"\0")


def test_pieces_that_it_cannot_describe() -> None:
    made = program()
    made.tensor(Operand(("bf16", ""), (3, 6), 0, ((Piece(0, 1, FIRST),), (), ())))
    with pytest.raises(InternalError, match="cannot describe"):
        made.encode()
