"""Writes `.rknn` files with the `flatbuffers` package, from docs/rknn-file.md: another hand than the walker's."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import flatbuffers

INPUT, OUTPUT, CONSTANT = 1, 2, 4
FP32, S8, S32, FP16 = 1, 3, 6, 10


@dataclass
class Tensor:
    """`size` is what the tensor says it has, by default the bytes that are there."""

    name: str
    dtype: int
    kind: int
    shape: list[int]
    stored: list[int]
    data: bytes = b""
    scale: float | None = None
    zero: int = 0
    limits: tuple[float, float] = (-1.0, 1.0)
    size: int = 0


@dataclass
class Graph:
    tensors: list[Tensor]
    operators: list[tuple[str, str, list[int], list[int]]] = field(default_factory=list)


def write_rknn(path: Path, *graphs: Graph, version: int = 6, repeat: int = 1) -> Path:
    """With `repeat`, lists of graphs and of tensors name each item that many times."""
    body = flatbuffer(graphs, repeat)
    text = json.dumps({"target_platform": ["rk3588"], "version": "2.5.0"}).encode()
    head = b"RKNN\0\0\0\0" + version.to_bytes(8, "little") + len(body).to_bytes(8, "little")
    path.write_bytes(head.ljust(64, b"\0") + body + len(text).to_bytes(8, "little") + text)
    return path


def flatbuffer(graphs: tuple[Graph, ...], repeat: int = 1) -> bytes:
    """Data comes last in the buffer and 64-byte aligned, as the toolkit has it: builders write from the end."""
    builder = flatbuffers.Builder(1024)
    data = [b"", *(tensor.data for graph in graphs for tensor in graph.tensors if tensor.data)]
    vectors = [_aligned(builder, item) for item in data]
    buffers = _tables(builder, [_table(builder, 1, {0: ("offset", vector)}) for vector in vectors])
    numbers = iter(range(1, len(data)))
    written = _tables(builder, repeat * [_graph(builder, graph, numbers, repeat) for graph in graphs])
    texts = {7: "2.5.0 (made by hand)", 8: "rk3588", 9: "ONNX"}
    strings = {index: ("offset", builder.CreateString(value)) for index, value in texts.items()}
    fields = {0: ("Int32", 6), 2: ("offset", written), 20: ("offset", buffers), **strings}
    builder.Finish(_table(builder, 21, fields), file_identifier=b"RKNN")
    found = bytes(builder.Output())
    return found.ljust(-(-len(found) // 64) * 64, b"\0")


def _graph(builder: flatbuffers.Builder, graph: Graph, numbers: object, repeat: int) -> int:
    tensors = _tables(builder, repeat * [_tensor(builder, tensor, numbers) for tensor in graph.tensors])
    operators = []
    for kind, name, inputs, outputs in graph.operators:
        fields = {1: builder.CreateString(kind), 2: builder.CreateString(name)}
        fields |= {4: _numbers(builder, inputs), 5: _numbers(builder, outputs)}
        operators.append(_table(builder, 6, {index: ("offset", place) for index, place in fields.items()}))
    return _table(builder, 2, {0: ("offset", tensors), 1: ("offset", _tables(builder, operators))})


def _tensor(builder: flatbuffers.Builder, tensor: Tensor, numbers: object) -> int:
    fields = {0: ("Uint8", tensor.dtype), 2: ("Uint8", tensor.kind)}
    fields |= {3: ("offset", _numbers(builder, tensor.stored)), 4: ("offset", _numbers(builder, tensor.shape))}
    fields |= {5: ("offset", builder.CreateString(tensor.name))}
    if tensor.scale is not None:
        fields |= {8 + i: ("offset", _numbers(builder, [limit])) for i, limit in enumerate(tensor.limits)}
        fields |= {10: ("offset", _numbers(builder, [tensor.scale])), 11: ("offset", _numbers(builder, [tensor.zero]))}
    if tensor.data:
        fields |= {12: ("Uint32", tensor.size or len(tensor.data)), 18: ("Uint32", next(numbers))}  # type: ignore[call-overload]
    return _table(builder, 19, fields)


def _table(builder: flatbuffers.Builder, count: int, fields: dict[int, tuple[str, int]]) -> int:
    builder.StartObject(count)
    for index, (kind, value) in fields.items():
        if kind == "offset":
            builder.PrependUOffsetTRelativeSlot(index, value, 0)
        else:
            getattr(builder, f"Prepend{kind}Slot")(index, value, 0)
    return int(builder.EndObject())


def _tables(builder: flatbuffers.Builder, places: list[int]) -> int:
    builder.StartVector(4, len(places), 4)
    for place in reversed(places):
        builder.PrependUOffsetTRelative(place)
    return int(builder.EndVector())


def _numbers(builder: flatbuffers.Builder, values: list[int] | list[float]) -> int:
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependFloat32(value) if isinstance(value, float) else builder.PrependInt32(value)
    return int(builder.EndVector())


def _aligned(builder: flatbuffers.Builder, data: bytes) -> int:
    builder.StartVector(1, len(data), 64)
    builder.head -= len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data
    return int(builder.EndVector())
