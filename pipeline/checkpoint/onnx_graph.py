"""The constants of an ONNX model and where they stand: every graph of it, with its initializers and nodes, read in place.

Field numbers are those of `onnx.proto`. Graphs are the main one, those inside nodes (If, Loop, Scan), and local functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipeline.axmodel.onnx_fields import GRAPH_INITIALIZER, GRAPH_NODE, MODEL_GRAPH
from pipeline.axmodel.walk import NEU_MODE
from pipeline.axmodel.wire import LENGTH, Field, fields, text
from pipeline.container.mapped import Buffer
from pipeline.errors import AxmodelError

_MODEL_FUNCTIONS, _FUNCTION_NAME, _FUNCTION_NODE, _SPARSE_INITIALIZER = 25, 1, 7, 15
_INPUT, _OUTPUT, _OP_TYPE, _ATTRIBUTE = 1, 2, 4, 5
_NAME, _INTEGER, _TENSOR, _GRAPH, _GRAPHS = 1, 3, 5, 6, 11
_MAX_DEPTH = 32


@dataclass(frozen=True)
class Message:
    """A message in the file: its payload, bytes, and its place in words, for error lines."""

    start: int
    stop: int
    where: str


@dataclass
class OnnxNode:
    """What sources need of a node; `graphs` by attribute, `tensor` the attribute `value` of a Constant."""

    op_type: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    integers: dict[str, int] = field(default_factory=dict)
    graphs: list[tuple[str, Message]] = field(default_factory=list)
    tensor: Message | None = None


@dataclass
class OnnxGraph:
    """A graph; `place` is empty for the main one, else the outputs and attributes of the nodes around it."""

    place: str
    initializers: list[Message] = field(default_factory=list)
    nodes: list[OnnxNode] = field(default_factory=list)
    inner: list[OnnxGraph] = field(default_factory=list)


def read_graphs(data: Buffer) -> list[OnnxGraph]:
    """The main graph, then the local functions; inner graphs hang on the graph around them.

    Raises AxmodelError for what is not an ONNX model, for a finished engine, and for graphs nested too deep.
    """
    graphs: list[Message] = []
    functions: list[Message] = []
    for part in fields(data, 0, len(data), "model"):
        if part.number == MODEL_GRAPH:
            graphs.append(_message(part, "graph"))
        elif part.number == _MODEL_FUNCTIONS:
            functions.append(_message(part, f"function[{len(functions)}]"))
    if len(graphs) != 1:
        raise AxmodelError("not an ONNX model", where="model.graph", expected="1 graph", found=len(graphs))
    return [_graph(data, graphs[0], "", 0), *(_function(data, message) for message in functions)]


def _message(part: Field, where: str) -> Message:
    if part.kind != LENGTH:
        raise AxmodelError("not a message", where=where, offset=part.start)
    return Message(part.start, part.stop, where)


def _graph(data: Buffer, message: Message, place: str, depth: int) -> OnnxGraph:
    if depth > _MAX_DEPTH:
        raise AxmodelError("graphs are nested too deep", where=place, offset=message.start, expected=_MAX_DEPTH)
    graph, where = OnnxGraph(place), message.where
    for part in fields(data, message.start, message.stop, where):
        if part.number == GRAPH_INITIALIZER:
            graph.initializers.append(_message(part, f"{where}.initializer[{len(graph.initializers)}]"))
        elif part.number == GRAPH_NODE:
            _add_node(data, graph, _message(part, f"{where}.node[{len(graph.nodes)}]"), depth)
        elif part.number == _SPARSE_INITIALIZER:
            raise AxmodelError("sparse initializers are not supported", where=where, offset=part.start)
    return graph


def _function(data: Buffer, message: Message) -> OnnxGraph:
    parts = list(fields(data, message.start, message.stop, message.where))
    names = [text(data, part, message.where) for part in parts if part.number == _FUNCTION_NAME]
    graph = OnnxGraph("".join(names[-1:]) or message.where)
    for part in parts:
        if part.number == _FUNCTION_NODE:
            _add_node(data, graph, _message(part, f"{message.where}.node[{len(graph.nodes)}]"), 0)
    return graph


def _add_node(data: Buffer, graph: OnnxGraph, message: Message, depth: int) -> None:
    node = _node(data, message)
    if node.op_type == NEU_MODE:
        raise AxmodelError("a finished engine, not a source of weights", where=message.where)
    graph.nodes.append(node)
    around = f"{graph.place}/" if graph.place else ""
    for key, inner in node.graphs:
        place = f"{around}{node.outputs[0] if node.outputs else message.where}.{key}"
        graph.inner.append(_graph(data, inner, place, depth + 1))


def _node(data: Buffer, message: Message) -> OnnxNode:
    node, where = OnnxNode(), message.where
    for part in fields(data, message.start, message.stop, where):
        if part.number == _INPUT:
            node.inputs.append(text(data, part, where))
        elif part.number == _OUTPUT:
            node.outputs.append(text(data, part, where))
        elif part.number == _OP_TYPE:
            node.op_type = text(data, part, where)
        elif part.number == _ATTRIBUTE:
            _add_attribute(data, node, _message(part, f"{where}.attribute"))
    return node


def _add_attribute(data: Buffer, node: OnnxNode, message: Message) -> None:
    where = message.where
    parts = list(fields(data, message.start, message.stop, where))
    key = "".join([text(data, part, where) for part in parts if part.number == _NAME][-1:])
    for number, part in enumerate(parts):
        if part.number == _INTEGER:
            node.integers[key] = part.value - (part.value >> 63 << 64)
        elif part.number == _TENSOR and key == "value":
            node.tensor = _message(part, where)
        elif part.number in (_GRAPH, _GRAPHS):
            name = f"{key}[{number}]" if part.number == _GRAPHS else key
            node.graphs.append((name, _message(part, where)))


def walk_graphs(graphs: list[OnnxGraph]) -> Iterator[OnnxGraph]:
    """Every graph, each before those inside it."""
    for graph in graphs:
        yield graph
        yield from walk_graphs(graph.inner)
