"""Writer of the reference engines' microcode (docs/microcode.md), one binary description per shape group."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from layouts.algebra import Piece
from pipeline.errors import InternalError

MAGIC = b"RNEU"
VERSION = 2
KIND_LAYER, KIND_POST = 1, 2
NO_TENSOR = 0xFFFFFFFF
CODEC_IDS = {
    ("bf16", ""): 1,
    ("bf16_truncated", ""): 1,
    ("fp32", ""): 2,
    ("s8", "reciprocal"): 3,
    ("s4", "bf16"): 4,
    ("s4", "fp16"): 5,
}
"""(codec, scale entry) -> id."""
ACTIVATION_IDS = {"silu": 1, "gelu_tanh": 2}
MAX_DIGITS = 6

_HEADER = struct.Struct("<4s10I20x")
_TENSOR = struct.Struct("<10I8x")
_PIECE = struct.Struct("<2IQ2I")
_DIGIT = struct.Struct("<qI4x")
_OPERATION = struct.Struct("<12I")

_OPCODES = {
    "LOAD": 1,
    "STORE": 2,
    "NORM": 3,
    "MATMUL": 4,
    "ROPE": 5,
    "ATTEND": 6,
    "GLU": 7,
    "ADD": 8,
    "ROUND": 9,
}


def float_bits(value: float) -> int:
    """The bits of `value` as float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


@dataclass(frozen=True)
class Operand:
    """A tensor as one shape group reads it.

    kind : codec and scale entry, a key of `CODEC_IDS`
    shape : rows first
    group : columns of a scale entry, 0 for floats
    fields : pieces of the plane of the lowest bits, of the second plane, of the scale entries; () where there are none
    """

    kind: tuple[str, str]
    shape: tuple[int, int]
    group: int
    fields: tuple[tuple[Piece, ...], tuple[Piece, ...], tuple[Piece, ...]]


@dataclass
class Program:
    """The registers, tensors and operations of one shape group; ids are handed out in order of use."""

    kind: int
    layer: int
    tokens: int
    history: int
    registers: list[int] = field(default_factory=list)
    tensors: list[Operand] = field(default_factory=list)
    operations: list[tuple[int, ...]] = field(default_factory=list)

    def register(self, width: int) -> int:
        self.registers.append(width)
        return len(self.registers) - 1

    def tensor(self, operand: Operand) -> int:
        self.tensors.append(operand)
        return len(self.tensors) - 1

    def emit(self, name: str, *arguments: int) -> None:
        self.operations.append((_OPCODES[name], *arguments))

    def encode(self) -> bytes:
        """The microcode's bytes."""
        body = struct.pack(f"<{len(self.registers)}I", *self.registers)
        first = 0
        for operand in self.tensors:
            body += _encode_tensor(operand, first)
            first += sum(map(len, operand.fields))
        body += b"".join(_encode_piece(piece) for operand in self.tensors for own in operand.fields for piece in own)
        for operation in self.operations:
            body += _OPERATION.pack(*operation, *([0] * (12 - len(operation))))
        counts = (len(self.registers), len(self.tensors), first, len(self.operations))
        size = _HEADER.size + len(body)
        return _HEADER.pack(MAGIC, VERSION, size, self.kind, self.layer, self.tokens, self.history, *counts) + body


def _encode_tensor(operand: Operand, first: int) -> bytes:
    ranges: list[int] = []
    for own in operand.fields:
        ranges += (first, len(own)) if own else (0, 0)
        first += len(own)
    return _TENSOR.pack(CODEC_IDS[operand.kind], *operand.shape, operand.group, *ranges)


def _encode_piece(piece: Piece) -> bytes:
    layout = piece.layout
    digits = layout.rows + layout.cols
    if piece.col or len(digits) > MAX_DIGITS:
        raise InternalError(f"the microcode cannot describe the piece {piece}")
    head = _PIECE.pack(piece.row, layout.shape[0], layout.base, len(layout.rows), len(layout.cols))
    tail = b"".join(_DIGIT.pack(digit.stride, digit.size) for digit in digits)
    return head + tail + bytes(_DIGIT.size * (MAX_DIGITS - len(digits)) + 128 - 120)
