"""The graph of a model as its fields: nodes, initializers with the places of their bytes, declared values."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.axmodel import onnx_fields as onnx
from pipeline.axmodel.wire import LENGTH, Field, fields, text
from pipeline.container.mapped import Blob, Buffer
from pipeline.errors import AxmodelError


@dataclass(frozen=True)
class Graph:
    """What the walk needs of a GraphProto. `values` are the declared inputs, outputs and intermediate values by name."""

    nodes: tuple[onnx.Node, ...]
    initializers: dict[str, onnx.Initializer]
    values: dict[str, onnx.ValueInfo]

    def blob(self, name: str, where: str) -> Blob:
        """The bytes of an initializer that the engine runs or reads: they must stand in the file as they are.

        Raises
        ------
        AxmodelError : no such initializer, an unknown element type, data that is not `raw_data`
        """
        if name not in self.initializers:
            raise AxmodelError(f"names the initializer {name!r}, which is not in the file", where=where)
        found = self.initializers[name]
        where = f"initializer {name!r}"
        if found.data_type not in onnx.DATA_TYPES:
            raise AxmodelError("unknown element type", where=where, offset=found.offset, found=found.data_type)
        if found.typed and not found.size:
            raise AxmodelError("its data is not raw", where=where, expected="raw_data", found=found.typed)
        return Blob(name, found.offset, found.size)

    def blobs(self) -> tuple[Blob, ...]:
        """Every initializer with raw bytes, in file order."""
        return tuple(Blob(item.name, item.offset, item.size) for item in self.initializers.values() if item.size)


@dataclass(frozen=True)
class Model:
    producer: str
    doc: str
    graph: Graph
    metadata: dict[str, str]


def read_model(data: Buffer) -> Model:
    """Raises AxmodelError with the offset of the first thing that is no ONNX model of one graph."""
    producer, doc, graphs, metadata = "", "", [], {}
    for field in fields(data, 0, len(data), "model"):
        if field.number == onnx.MODEL_PRODUCER:
            producer = text(data, field, "model.producer_name")
        elif field.number == onnx.MODEL_DOC:
            doc = text(data, field, "model.doc_string")
        elif field.number == onnx.MODEL_GRAPH and field.kind == LENGTH:
            graphs.append(field)
        elif field.number == onnx.MODEL_METADATA and field.kind == LENGTH:
            key, value = _pair(data, field)
            metadata[key] = value
    if len(graphs) != 1:
        raise AxmodelError("not an engine", where="model.graph", expected="1 graph", found=len(graphs))
    return Model(producer, doc, _graph(data, graphs[0].start, graphs[0].stop), metadata)


def _pair(data: Buffer, field: Field) -> tuple[str, str]:
    """StringStringEntryProto: key 1, value 2."""
    found = {1: "", 2: ""}
    for part in fields(data, field.start, field.stop, "model.metadata_props"):
        if part.number in found:
            found[part.number] = text(data, part, "model.metadata_props")
    return found[1], found[2]


def _graph(data: Buffer, start: int, stop: int) -> Graph:
    nodes: list[onnx.Node] = []
    initializers: dict[str, onnx.Initializer] = {}
    values: dict[str, onnx.ValueInfo] = {}
    for field in fields(data, start, stop, "graph"):
        if field.number not in (onnx.GRAPH_NODE, onnx.GRAPH_INITIALIZER, *_VALUES):
            continue
        if field.kind != LENGTH:
            raise AxmodelError(f"field {field.number} is not a message", where="graph", offset=field.start)
        if field.number == onnx.GRAPH_NODE:
            nodes.append(onnx.node(data, field.start, field.stop, f"graph.node[{len(nodes)}]"))
        elif field.number == onnx.GRAPH_INITIALIZER:
            _add(initializers, data, field)
        else:
            value = onnx.value_info(data, field.start, field.stop, "graph.input/output/value_info")
            values[value.name] = value
    return Graph(tuple(nodes), initializers, values)


_VALUES = (onnx.GRAPH_INPUT, onnx.GRAPH_OUTPUT, onnx.GRAPH_VALUE)


def _add(known: dict[str, onnx.Initializer], data: Buffer, field: Field) -> None:
    where = f"graph.initializer[{len(known)}]"
    found = onnx.initializer(data, field.start, field.stop, where)
    if found.name in known:
        raise AxmodelError(f"two initializers are called {found.name!r}", where=where, offset=field.start)
    _check_initializer(found)
    known[found.name] = found


def _check_initializer(found: onnx.Initializer) -> None:
    """Dimensions must say what the data is; external data is not followed."""
    where = f"initializer {found.name!r}"
    if found.external:
        raise AxmodelError("data outside the engine file is not read", where=where, offset=found.offset)
    if found.data_type not in onnx.DATA_TYPES or not found.size:
        return
    size = onnx.DATA_TYPES[found.data_type][1] // 8
    for dim in found.dims:
        size *= dim
    if size != found.size:
        raise AxmodelError(
            "dims disagree with the data", where=where, offset=found.offset, expected=size, found=found.size
        )
