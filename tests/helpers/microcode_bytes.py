"""Engines for the simulator's tests, spelled out in bytes from docs/microcode.md, without the reference compiler."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from tests.helpers.numerics import bf16_bits

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


def piece(
    first: int, rows: int, base: int, row_digits: list[tuple[int, int]], col_digits: list[tuple[int, int]]
) -> bytes:
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
    tensors: list[tuple[int, int, int, list[bytes]]] = field(default_factory=list)
    operations: list[bytes] = field(default_factory=list)

    def register(self, width: int) -> int:
        self.registers.append(width)
        return len(self.registers) - 1

    def tensor(self, codec: str, shape: tuple[int, ...], pieces: list[bytes]) -> int:
        rows, cols = shape if len(shape) == 2 else (1, *shape)
        self.tensors.append(({"bf16": 1, "fp32": 2}[codec], rows, cols, pieces))
        return len(self.tensors) - 1

    def emit(self, name: str, *arguments: int) -> None:
        self.operations.append(struct.pack("<12I", CODES[name], *arguments, *[0] * (11 - len(arguments))))

    def encode(self) -> bytes:
        body = struct.pack(f"<{len(self.registers)}I", *self.registers)
        first = 0
        for codec, rows, cols, pieces in self.tensors:
            body += struct.pack("<5I12x", codec, rows, cols, first, len(pieces))
            first += len(pieces)
        body += b"".join(one for *_, pieces in self.tensors for one in pieces) + b"".join(self.operations)
        counts = (len(self.registers), len(self.tensors), first, len(self.operations))
        return struct.pack("<4s10I20x", b"RNEU", 1, 64 + len(body), self.kind, 7, self.m, self.history, *counts) + body


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
