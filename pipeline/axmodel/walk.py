"""Walks an engine container to its blobs, with absolute file offsets. The file is mapped read-only, never parsed whole.

Blobs are found by following `npu_graph_info`, or the older `neu` attribute: never by a fixed name or offset.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.axmodel import onnx_fields as onnx
from pipeline.axmodel.wire import LENGTH, fields, text
from pipeline.container.mapped import Blob, Buffer, map_file
from pipeline.errors import AxmodelError

NEU_MODE = "neu mode"


@dataclass(frozen=True)
class EngineIo:
    """A declared input or output of a shape group; `dtype` in the vendor's words (`BF16`, `U32` …)."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ShapeGroup:
    """One "neu mode" node: its microcode blob, its weight blob (None where the microcode holds all), its io."""

    index: int
    name: str
    microcode: Blob
    weights: Blob | None
    inputs: tuple[EngineIo, ...]
    outputs: tuple[EngineIo, ...]


@dataclass(frozen=True)
class Engine:
    """A walked container. `generation` is the layout of its attributes: `1.1`, `1.6` or `7.0`."""

    path: Path
    size: int
    producer: str
    doc: str
    generation: str
    groups: tuple[ShapeGroup, ...]
    blobs: tuple[Blob, ...]

    @property
    def weights(self) -> Blob:
        """The one weight blob that every shape group shares."""
        found = {group.weights or group.microcode for group in self.groups}
        if len(found) != 1:
            names = ", ".join(sorted(blob.name for blob in found))
            raise AxmodelError("shape groups do not share one weight blob", file=self.path, found=names)
        return found.pop()

    def microcode(self) -> tuple[Blob, ...]:
        return tuple(group.microcode for group in self.groups if group.weights is not None)


def walk_engine(path: Path) -> Engine:
    """Walk the container at `path`.

    Raises AxmodelError with the offset of the first thing that is not as an engine has it.
    """
    with map_file(path) as data:
        try:
            return _walk(path, data)
        except AxmodelError as error:
            raise error.in_file(path) from None


@dataclass
class _Graph:
    nodes: list[onnx.Node]
    initializers: dict[str, onnx.Initializer]
    values: dict[str, onnx.ValueInfo]


def _walk(path: Path, data: Buffer) -> Engine:
    producer, doc, graphs = "", "", []
    for field in fields(data, 0, len(data), "model"):
        if field.number == onnx.MODEL_PRODUCER:
            producer = text(data, field, "model.producer_name")
        elif field.number == onnx.MODEL_DOC:
            doc = text(data, field, "model.doc_string")
        elif field.number == onnx.MODEL_GRAPH and field.kind == LENGTH:
            graphs.append(field)
    if len(graphs) != 1:
        raise AxmodelError("not an engine", where="model.graph", expected="1 graph", found=len(graphs))
    graph = _graph(data, graphs[0].start, graphs[0].stop)
    nodes = [node for node in graph.nodes if node.op_type == NEU_MODE]
    if not nodes:
        found = sorted({node.op_type for node in graph.nodes})[:5]
        raise AxmodelError("not an engine", where="graph.node", expected=f'a "{NEU_MODE}" node', found=found)
    groups = tuple(_group(index, node, graph) for index, node in enumerate(nodes))
    blobs = tuple(_blob(item) for item in graph.initializers.values() if item.size)
    return Engine(path, len(data), producer, doc, _generation(nodes[0]), groups, blobs)


def _graph(data: Buffer, start: int, stop: int) -> _Graph:
    graph = _Graph([], {}, {})
    for field in fields(data, start, stop, "graph"):
        if field.number == onnx.GRAPH_NODE:
            graph.nodes.append(onnx.node(data, field.start, field.stop, f"graph.node[{len(graph.nodes)}]"))
        elif field.number == onnx.GRAPH_INITIALIZER:
            where = f"graph.initializer[{len(graph.initializers)}]"
            found = onnx.initializer(data, field.start, field.stop, where)
            if found.name in graph.initializers:
                raise AxmodelError(f"two initializers are called {found.name!r}", where=where, offset=field.start)
            _check_initializer(found)
            graph.initializers[found.name] = found
        elif field.number in (onnx.GRAPH_INPUT, onnx.GRAPH_OUTPUT):
            value = onnx.value_info(data, field.start, field.stop, "graph.input/output")
            graph.values[value.name] = value
    return graph


def _check_initializer(found: onnx.Initializer) -> None:
    """Dimensions must say what the data is; external data is not followed."""
    where = f"initializer {found.name!r}"
    if found.external:
        raise AxmodelError("data outside the engine file is not read", where=where, offset=found.offset)
    if found.data_type not in onnx.DATA_TYPES:
        raise AxmodelError("unknown element type", where=where, offset=found.offset, found=found.data_type)
    size = onnx.DATA_TYPES[found.data_type][1] // 8
    for dim in found.dims:
        size *= dim
    if size != found.size and found.size:
        raise AxmodelError(
            "dims disagree with the data", where=where, offset=found.offset, expected=size, found=found.size
        )


def _blob(found: onnx.Initializer) -> Blob:
    return Blob(found.name, found.offset, found.size)


def _generation(node: onnx.Node) -> str:
    if "npu_graph_info" not in node.attributes:
        return "1.1"
    return "1.6" if "DotNeuInputConst" in str(node.attributes["npu_graph_info"]) else "7.0"


def _group(index: int, node: onnx.Node, graph: _Graph) -> ShapeGroup:
    where = f"node {node.name!r}"
    if "npu_graph_info" in node.attributes:
        microcode_key, weights_key = _keys(str(node.attributes["npu_graph_info"]), where)
    else:
        microcode_key, weights_key = str(node.attributes.get("neu", "")), None
    return ShapeGroup(
        index,
        node.name,
        _lookup(graph, microcode_key, where),
        None if weights_key is None else _lookup(graph, weights_key, where),
        tuple(_io(graph, name, where) for name in node.inputs if name in graph.values),
        tuple(_io(graph, name, where) for name in node.outputs if name in graph.values),
    )


def _keys(info: str, where: str) -> tuple[str, str | None]:
    where += " attribute npu_graph_info"
    try:
        dotneus: Any = json.loads(info)["dotneus"]
        microcode = dotneus[0]["neu_key"]
        extra = [item["const_data_key"] for item in dotneus[0].get("extra_inputs", []) if "const_data_key" in item]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise AxmodelError(f"not the JSON of an NPU graph: {error!r}", where=where) from None
    if not isinstance(microcode, str) or not all(isinstance(key, str) for key in extra):
        raise AxmodelError("keys are not text", where=where)
    return microcode, extra[0] if extra else None


def _lookup(graph: _Graph, key: str, where: str) -> Blob:
    if key not in graph.initializers:
        raise AxmodelError(f"names the initializer {key!r}, which is not in the file", where=where)
    return _blob(graph.initializers[key])


def _io(graph: _Graph, name: str, where: str) -> EngineIo:
    value = graph.values[name]
    if value.data_type not in onnx.DATA_TYPES:
        raise AxmodelError(f"io {name!r} has an unknown element type", where=where, found=value.data_type)
    return EngineIo(name, onnx.DATA_TYPES[value.data_type][0], value.dims)
