"""Walks an `.rknn` to its tensors, with absolute file offsets. The file is mapped read-only, never parsed whole.

File: `RKNN`, 4 zero bytes, u64 version, u64 length L, zeros up to byte 64, a FlatBuffer of L bytes, u64 J, J bytes of
JSON. The schema of the FlatBuffer is not published; the field numbers here were found by experiment with toolkit 2.5.0
(docs/rknn-file.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.axmodel.onnx_fields import DATA_TYPES
from pipeline.container.mapped import Blob, Buffer, map_file
from pipeline.errors import RknnError
from pipeline.rknn.flatbuffer import Region, Table

MAGIC = b"RKNN"
BODY = 64
TILE_AXES = 6
KINDS = {1: "input", 2: "output", 3: "internal", 4: "constant", 5: "argument", 9: "commands", 10: "tasks"}
_ROOT_GRAPHS, _ROOT_COMPILER, _ROOT_TARGET, _ROOT_SOURCE, _ROOT_BUFFERS = 2, 7, 8, 9, 20
_GRAPH_TENSORS, _GRAPH_OPERATORS = 0, 1
_DTYPE, _LAYOUT, _KIND, _STORED_SHAPE, _SHAPE, _NAME, _LEAST, _LARGEST = 0, 1, 2, 3, 4, 5, 8, 9
_SCALE, _ZERO, _BYTES, _BUFFER = 10, 11, 12, 18
_OP_TYPE, _OP_NAME, _OP_INPUTS, _OP_OUTPUTS = 1, 2, 4, 5


@dataclass(frozen=True)
class RknnTensor:
    """A tensor of a graph, and where its bytes stand in the file: None for one that exists at run time only, and for a
    weight that stands in another graph under the same name.

    `shape` is the logical one. `stored_shape` is how the chip holds it, slowest first; of a weight it is `TILE_AXES` numbers
    for each group of tiles: row tiles, column tiles, height, width, rows and columns of a tile (docs/rknn-file.md). `scales`,
    `zero_points` and `limits` (least, largest) are empty unless it is an activation of a quantized engine.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    stored_shape: tuple[int, ...]
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    data: Blob | None
    limits: tuple[float, ...] = ()

    @property
    def exact_scale(self) -> float:
        """The scale of an activation before it was rounded to float32: what the compiler computes with.

        Raises RknnError for a tensor that has none.
        """
        if len(self.limits) != 2:
            raise RknnError("not one least and one largest value", where=f"tensor {self.name!r}", found=self.limits)
        low, high = self.limits
        return (high - low) / 255


@dataclass(frozen=True)
class RknnOperator:
    """A step of the graph; the names of its tensors, in the order of its arguments."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class RknnGraph:
    """The network for one set of input shapes."""

    tensors: tuple[RknnTensor, ...]
    operators: tuple[RknnOperator, ...]


@dataclass(frozen=True)
class RknnEngine:
    """A walked container. `body` is the FlatBuffer; `info` the JSON behind it."""

    path: Path
    size: int
    version: int
    compiler: str
    target: str
    source: str
    body: Blob
    graphs: tuple[RknnGraph, ...]
    info: dict[str, Any]

    @property
    def tensors(self) -> tuple[RknnTensor, ...]:
        """Those of all graphs."""
        return tuple(tensor for graph in self.graphs for tensor in graph.tensors)

    @property
    def operators(self) -> tuple[RknnOperator, ...]:
        return tuple(operator for graph in self.graphs for operator in graph.operators)

    def constants(self) -> tuple[RknnTensor, ...]:
        """The tensors that hold weights, in file order."""
        found = [tensor for tensor in self.tensors if tensor.kind == "constant" and tensor.data is not None]
        return tuple(sorted(found, key=lambda tensor: tensor.data.offset if tensor.data else 0))


def walk_rknn(path: Path) -> RknnEngine:
    """Walk the container at `path`.

    Raises RknnError with the offset of the first thing that is not as an engine has it.
    """
    with map_file(path) as data:
        try:
            return _walk(path, data)
        except RknnError as error:
            raise error.in_file(path) from None


def _walk(path: Path, data: Buffer) -> RknnEngine:
    if bytes(data[:4]) != MAGIC:
        raise RknnError("not an .rknn", offset=0, expected=MAGIC, found=bytes(data[:4]))
    if len(data) < BODY + 8:
        raise RknnError("shorter than its header", offset=len(data), expected=f"{BODY + 8} bytes", found=len(data))
    version, length = (int.from_bytes(data[at : at + 8], "little") for at in (8, 16))
    if length > len(data) - BODY - 8:
        most = f"at most {len(data) - BODY - 8} bytes"
        raise RknnError("the FlatBuffer runs past the end of the file", offset=16, expected=most, found=length)
    if bytes(data[BODY + 4 : BODY + 8]) != MAGIC:
        found = f"version {version}, {bytes(data[BODY + 4 : BODY + 8])!r}"
        reason = "not the FlatBuffer of an .rknn (the mini format of rv1103 and rv1106 is not read)"
        raise RknnError(reason, offset=BODY + 4, expected=MAGIC, found=found)
    root = Region(data, BODY, BODY + length).root()
    buffers = [table.blob(0, f"buffer {i}") for i, table in enumerate(root.tables(_ROOT_BUFFERS, "buffer"))]
    graphs = tuple(_graph(table, buffers) for table in root.tables(_ROOT_GRAPHS, "graph"))
    if not graphs:
        raise RknnError("not an engine", where="root", offset=root.at, expected="a graph", found="none")
    compiler, target, source = (root.text(index) for index in (_ROOT_COMPILER, _ROOT_TARGET, _ROOT_SOURCE))
    body, info = Blob("body", BODY, length), _info(data, BODY + length)
    return RknnEngine(path, len(data), version, compiler, target, source, body, graphs, info)


def _graph(table: Table, buffers: list[Blob]) -> RknnGraph:
    tensors = tuple(_tensor(item, buffers) for item in table.tables(_GRAPH_TENSORS, "tensor"))
    return RknnGraph(tensors, tuple(_operator(item, tensors) for item in table.tables(_GRAPH_OPERATORS, "operator")))


def _tensor(table: Table, buffers: list[Blob]) -> RknnTensor:
    name, code, kind = table.text(_NAME), table.number(_DTYPE, "<B"), table.number(_KIND, "<B")
    dtype = DATA_TYPES[code][0] if code in DATA_TYPES else f"type {code}"
    buffer = table.number(_BUFFER, "<I")
    if buffer and buffer >= len(buffers):
        raise RknnError("no such buffer", where=f"tensor {name!r}", expected=f"below {len(buffers)}", found=buffer)
    return RknnTensor(
        name,
        KINDS.get(kind, f"kind {kind}"),
        dtype,
        _integers(table, _SHAPE),
        _integers(table, _STORED_SHAPE),
        tuple(float(scale) for scale in table.array(_SCALE, "<f4")),
        _integers(table, _ZERO),
        _data(table, name, buffers[buffer]) if buffers and buffers[buffer].size else None,
        tuple(float(number) for index in (_LEAST, _LARGEST) for number in table.array(index, "<f4")),
    )


def _data(table: Table, name: str, buffer: Blob) -> Blob:
    """The tensor's bytes: the first of its buffer, all of it where the tensor does not say how many."""
    size = table.number(_BYTES, "<I") or buffer.size
    if size > buffer.size:
        where = f"tensor {name!r}"
        raise RknnError("larger than its buffer", where=where, offset=buffer.offset, expected=buffer.size, found=size)
    return Blob(name, buffer.offset, size)


def _operator(table: Table, tensors: tuple[RknnTensor, ...]) -> RknnOperator:
    def names(index: int) -> tuple[str, ...]:
        found = _integers(table, index)
        if any(not 0 <= number < len(tensors) for number in found):
            raise RknnError("no such tensor", where=table.where, expected=f"below {len(tensors)}", found=found)
        return tuple(tensors[number].name for number in found)

    return RknnOperator(table.text(_OP_TYPE), table.text(_OP_NAME), names(_OP_INPUTS), names(_OP_OUTPUTS))


def _integers(table: Table, index: int) -> tuple[int, ...]:
    return tuple(int(number) for number in table.array(index, "<i4"))


def _info(data: Buffer, at: int) -> dict[str, Any]:
    """The JSON behind the FlatBuffer, up to the end of the file."""
    length = int.from_bytes(data[at : at + 8], "little")
    if length > len(data) - at - 8:
        most = f"at most {len(data) - at - 8} bytes"
        raise RknnError("the JSON runs past the end of the file", offset=at, expected=most, found=length)
    try:
        info = json.loads(bytes(data[at + 8 : at + 8 + length]))
    except (ValueError, RecursionError) as error:
        raise RknnError(f"not JSON behind the FlatBuffer: {error}", offset=at + 8) from None
    if not isinstance(info, dict):
        raise RknnError("not a JSON object behind the FlatBuffer", offset=at + 8)
    return info
