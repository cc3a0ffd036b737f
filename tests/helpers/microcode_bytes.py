"""Engines for the simulator's tests, spelled out in bytes from docs/microcode.md, without the reference compiler."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from tests.helpers.numerics import bf16_bits

Digits = list[tuple[int, int]]
CODECS = {"bf16": 1, "fp32": 2, "s8": 3, "s4": 4, "s4_fp16": 5}
_NAMES = ("LOAD", "STORE", "NORM", "MATMUL", "ROPE", "ATTEND", "GLU", "ADD", "ROUND")
CODES = {name: code for code, name in enumerate(_NAMES, start=1)}
NO_TENSOR = 0xFFFFFFFF
BF16, U32 = TensorProto.BFLOAT16, TensorProto.UINT32


def float_bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


@dataclass
class Weights:
    """The blob that groups share."""

    data: bytearray = field(default_factory=lambda: bytearray(b"\xa5" * 3))

    def add(self, values: npt.NDArray[np.float32], codec: str) -> bytes:
        """Stores a matrix in lines of 16 rows (bf16) or row by row (fp32); returns its one piece."""
        rows, cols = values.shape
        base = len(self.data)
        if codec == "fp32":
            self.data += values.astype("<f4").tobytes()
            digits = [(32 * cols, rows), (32, cols)]
            return piece(0, rows, base * 8, digits[:1], digits[1:])
        lines = -(-rows // 16)
        padded = np.zeros((lines * 16, cols), np.float32)
        padded[:rows] = values
        self.data += bf16_bits(padded.reshape(lines, 16, cols).swapaxes(1, 2)).astype("<u2").tobytes()
        return piece(0, rows, base * 8, [(16, 16), (256 * cols, lines)], [(256, cols)])

    def add_part(
        self, values: npt.NDArray[Any], bits: int, pieces: list[tuple[int, int, int, Digits, Digits]]
    ) -> list[bytes]:
        """Stores unsigned integers `[rows, cols]` of `bits` where pieces (arguments of `piece`) say, from here on.

        Half byte by half byte, the low one of a byte first.
        """
        base = len(self.data) * 8
        for first, rows, start, row_digits, col_digits in pieces:
            at = addresses(row_digits, rows)[:, None] + addresses(col_digits, values.shape[1])[None, :] + base + start
            self.data += bytes(max(0, int(at.max() + bits + 7) // 8 - len(self.data)))
            for address, value in zip(at.ravel().tolist(), values[first : first + rows].ravel().tolist(), strict=True):
                for bit in range(address, address + bits, 4):
                    self.data[bit // 8] |= (value >> (bit - address) & 15) << bit % 8
        return [piece(first, rows, base + start, *digits) for first, rows, start, *digits in pieces]


def addresses(digits: Digits, count: int) -> npt.NDArray[np.int64]:
    """The sum of digit times stride, in bits, of indices 0 to count - 1."""
    total, rest = np.zeros(count, np.int64), np.arange(count)
    for stride, size in digits:
        total += rest % size * stride
        rest //= size
    return total


def piece(first: int, rows: int, base: int, row_digits: Digits, col_digits: Digits) -> bytes:
    digits = row_digits + col_digits
    head = struct.pack("<2IQ2I", first, rows, base, len(row_digits), len(col_digits))
    return (head + b"".join(struct.pack("<qI4x", *digit) for digit in digits)).ljust(128, b"\0")


@dataclass
class Code:
    """One microcode, appended to piece by piece."""

    m: int
    history: int = 0
    kind: int = 1
    registers: list[int] = field(default_factory=list)
    tensors: list[tuple[int, int, int, int, list[list[bytes]]]] = field(default_factory=list)
    operations: list[bytes] = field(default_factory=list)

    def register(self, width: int) -> int:
        self.registers.append(width)
        return len(self.registers) - 1

    def tensor(self, codec: str, shape: tuple[int, ...], *parts: list[bytes], group: int = 0) -> int:
        """`parts`: pieces of the planes, then of the scale entries; one plane for all but s8, no entries for floats."""
        rows, cols = shape if len(shape) == 2 else (1, *shape)
        fields = [parts[0], [], *parts[1:]] if len(parts) == 2 else [*parts]
        self.tensors.append((CODECS[codec], rows, cols, group, fields))
        return len(self.tensors) - 1

    def emit(self, name: str, *arguments: int) -> None:
        self.operations.append(struct.pack("<12I", CODES[name], *arguments, *[0] * (11 - len(arguments))))

    def encode(self) -> bytes:
        body = struct.pack(f"<{len(self.registers)}I", *self.registers)
        first = 0
        for codec, rows, cols, group, parts in self.tensors:
            body += struct.pack("<4I", codec, rows, cols, group)
            for pieces in parts:
                body += struct.pack("<2I", first if pieces else 0, len(pieces))
                first += len(pieces)
            body += bytes(8 * (4 - len(parts)))
        body += b"".join(one for *_, parts in self.tensors for pieces in parts for one in pieces)
        body += b"".join(self.operations)
        counts = (len(self.registers), len(self.tensors), first, len(self.operations))
        return struct.pack("<4s10I20x", b"RNEU", 2, 64 + len(body), self.kind, 7, self.m, self.history, *counts) + body


@dataclass(frozen=True)
class Slot:
    name: str
    type: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    inputs: list[Slot]
    outputs: list[Slot]
    microcode: bytes


def layer_slots(m: int, history: int, hidden: int, kv: int) -> tuple[list[Slot], list[Slot]]:
    """The inputs and outputs of a whole-layer engine's group."""
    cache = (1, max(history, 1), kv)
    inputs = [Slot("K_cache", BF16, cache), Slot("V_cache", BF16, cache), Slot("indices", U32, (1, m))]
    inputs += [Slot("input", BF16, (1, m, hidden)), Slot("mask", BF16, (1, m, history + m))]
    outputs = [Slot(f"{which}_cache_out", BF16, (1, m, kv)) for which in "KV"]
    return inputs, [*outputs, Slot("output", BF16, (1, m, hidden))]


def write_engine(path: Path, groups: list[Group], weights: bytes) -> Path:
    """An `.axmodel` that the simulator loads."""
    nodes, inputs, outputs = [], [], []
    blobs = [_blob("npu_params", weights), _blob("npu_dyn_params", b"")]
    for index, group in enumerate(groups):
        suffix = f"_{index}" if index else ""
        name = f"subgraph_npu_{index}"
        extra = [{"name": "params", "const_data_key": "npu_params"}]
        info = {"name": name, "dotneus": [{"neu_key": f"{name}_b1_neu", "batch": 1, "extra_inputs": extra}]}
        ends = [[f"{slot.name}{suffix}" for slot in slots] for slots in (group.inputs, group.outputs)]
        nodes.append(helper.make_node("neu mode", *ends, name=name, npu_graph_info=json.dumps(info)))
        inputs += [_value(slot, suffix) for slot in group.inputs]
        outputs += [_value(slot, suffix) for slot in group.outputs]
        blobs.append(_blob(f"{name}_b1_neu", group.microcode))
    graph = helper.make_graph(nodes, "ax-model", inputs, outputs, initializer=blobs)
    model = helper.make_model(graph, producer_name="Pulsar2", ir_version=10)
    model.doc_string = "Pulsar2 Version: 7.0-test\nPulsar2 Commit: none"
    path.write_bytes(model.SerializeToString())
    return path


def _value(slot: Slot, suffix: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(slot.name + suffix, slot.type, slot.shape)


def _blob(name: str, data: bytes) -> onnx.TensorProto:
    return TensorProto(name=name, data_type=TensorProto.UINT8, dims=[len(data)], raw_data=data)
