"""Walks an engine container to its blobs, with absolute file offsets. The file is mapped read-only, never parsed whole.

Blobs are found by following `npu_graph_info`, or the older `neu` attribute: never by a fixed name or offset.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.axmodel import onnx_fields as onnx
from pipeline.axmodel.graph import Graph, Model, read_model
from pipeline.axmodel.keys import attribute_text, node_keys
from pipeline.container.mapped import Blob, Buffer, map_file
from pipeline.errors import AxmodelError

NEU_MODE = "neu mode"
OUTPUTS_INFO = "outputs_info"


@dataclass(frozen=True)
class EngineIo:
    """A declared input or output of a shape group; `dtype` in the vendor's words (`BF16`, `U32` …)."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ShapeGroup:
    """One "neu mode" node: its microcode blobs, one for each batch, its constant inputs, its io.

    `weights` is empty where the microcode holds all (generation 1.1).
    """

    index: int
    name: str
    microcode: tuple[Blob, ...]
    weights: tuple[Blob, ...]
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
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Blob, ...]:
        """The initializers that hold weights, in file order, without empty ones: what the groups name as constants, or their
        microcode where none names any."""
        constants = _once(blob for group in self.groups for blob in group.weights)
        if not constants:
            return _once(blob for group in self.groups for blob in group.microcode)
        return tuple(blob for blob in constants if blob.size) or constants[:1]

    @property
    def weights(self) -> Blob:
        """The one weight blob: the span from the first part's first byte to the last one's last byte."""
        first, *others = self.parts
        if not others:
            return first
        return Blob(f"{first.name}..{others[-1].name}", first.offset, others[-1].stop - first.offset)

    def microcode(self) -> tuple[Blob, ...]:
        """Blobs that hold microcode and no weights, in file order."""
        found = _once(blob for group in self.groups for blob in group.microcode)
        return tuple(blob for blob in found if blob not in self.parts)


def _once(blobs: Iterable[Blob]) -> tuple[Blob, ...]:
    return tuple(sorted(set(blobs), key=lambda blob: blob.offset))


def walk_engine(path: Path) -> Engine:
    """Walk the container at `path`.

    Raises AxmodelError with the offset of the first thing that is not as an engine has it.
    """
    with map_file(path) as data:
        try:
            return _walk(path, data)
        except AxmodelError as error:
            raise error.in_file(path) from None


def _walk(path: Path, data: Buffer) -> Engine:
    model = read_model(data)
    nodes = [node for node in model.graph.nodes if node.op_type == NEU_MODE]
    if not nodes:
        found = sorted({node.op_type for node in model.graph.nodes})[:5]
        raise AxmodelError("not an engine", where="graph.node", expected=f'a "{NEU_MODE}" node', found=found)
    generations, groups = zip(*(_group(data, *item, model.graph) for item in enumerate(nodes)), strict=True)
    return _engine(path, len(data), model, min(generations), groups)


def _engine(path: Path, size: int, model: Model, generation: str, groups: tuple[ShapeGroup, ...]) -> Engine:
    blobs = model.graph.blobs()
    return Engine(path, size, model.producer, model.doc, generation, groups, blobs, model.metadata)


def _group(data: Buffer, index: int, node: onnx.Node, graph: Graph) -> tuple[str, ShapeGroup]:
    where = f"node {node.name!r}"
    keys = node_keys(data, node, graph)
    declared = _declared_outputs(data, node)
    return keys.generation, ShapeGroup(
        index,
        node.name,
        tuple(graph.blob(name, where) for name in keys.microcode),
        tuple(graph.blob(name, where) for name in keys.constants),
        tuple(io for name in node.inputs for io in _io(graph, name, {}, where)),
        tuple(io for name in node.outputs for io in _io(graph, name, declared, where)),
    )


def _declared_outputs(data: Buffer, node: onnx.Node) -> dict[str, EngineIo]:
    """What `outputs_info` says: name -> [element type in the vendor's words, shape]; other entries are left out."""
    if OUTPUTS_INFO not in node.attributes:
        return {}
    try:
        info: Any = json.loads(attribute_text(data, node, OUTPUTS_INFO))
        return {name: EngineIo(name, str(dtype), tuple(map(int, shape))) for name, (dtype, shape) in info.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _io(graph: Graph, name: str, declared: dict[str, EngineIo], where: str) -> list[EngineIo]:
    """The value, as the graph declares it or else the node; nothing for an initializer or for a value nobody declares."""
    if name in graph.initializers:
        return []
    value = graph.values.get(name)
    if value is None or not value.data_type:
        return [declared[name]] if name in declared else []
    if value.data_type not in onnx.DATA_TYPES:
        raise AxmodelError(f"io {name!r} has an unknown element type", where=where, found=value.data_type)
    return [EngineIo(name, onnx.DATA_TYPES[value.data_type][0], value.dims)]
