"""An ONNX model as a source of weights: its constants under their own names, read in place.

Which constants are weights, and what they are called: docs/checkpoint.md. Tests compare with the `onnx` package.
"""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from pipeline.axmodel.onnx_fields import Initializer, initializer
from pipeline.checkpoint.looks_like import looks_like
from pipeline.checkpoint.onnx_dequantized import dequantized
from pipeline.checkpoint.onnx_external import ExternalFiles, external_entries
from pipeline.checkpoint.onnx_graph import Message, OnnxGraph, read_graphs
from pipeline.checkpoint.onnx_tensor import STRING, OnnxTensor, onnx_type
from pipeline.checkpoint.source_file import SourceFile
from pipeline.checkpoint.stored import StoredSource, StoredTensor
from pipeline.container.mapped import Buffer, map_file
from pipeline.errors import CheckpointError, ContainerError

_MAX_DIMS = 8
_Scope = MutableMapping[str, OnnxTensor]


class OnnxSource(StoredSource):
    """Implements `WeightSource`; opening reads the model's structure and no data.

    Attributes
    ----------
    files : the model, then the files of its external data

    Raises
    ------
    MissingFileError : the model or a file of external data is not there
    CheckpointError : malformed, truncated, no weights, two constants of one name in a graph, dimensions that disagree with
        the data, external data outside the model's directory, a finished engine
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        source, external = SourceFile(path), ExternalFiles(path)
        try:
            with map_file(path) as data:
                tensors = _Constants(data, source, external).named()
        except ContainerError as error:
            raise _as_checkpoint_error(error, source) from None
        self.files = [path, *sorted({opened.path for opened in external.opened.values()})]
        super().__init__(path, tensors)


def _as_checkpoint_error(error: ContainerError, source: SourceFile) -> CheckpointError:
    start = source.read(0, min(64, source.size)).tobytes()
    if error.offset == 0:
        return CheckpointError("not an ONNX model", file=source.path, found=looks_like(start))
    return CheckpointError(
        error.reason,
        file=source.path,
        where=error.where,
        offset=error.offset,
        expected=error.expected,
        found=error.found,
    )


class _Constants:
    """The constants of a mapped model."""

    def __init__(self, data: Buffer, source: SourceFile, external: ExternalFiles) -> None:
        self.data, self.source, self.external = data, source, external

    def named(self) -> dict[str, StoredTensor]:
        """All weights. A name that several graphs use is, inside graphs other than the main one, `place/name`."""
        found = [item for graph in read_graphs(self.data) for item in self._weights(graph, {})]
        uses = Counter(tensor.name for _, tensor in found)
        named: dict[str, StoredTensor] = {}
        for place, tensor in found:
            name = f"{place}/{tensor.name}" if place and uses[tensor.name] > 1 else tensor.name
            if name in named:
                raise CheckpointError("two tensors of one name", file=self.source.path, where=name)
            named[name] = tensor
        return named

    def _weights(self, graph: OnnxGraph, outer: _Scope) -> Iterator[tuple[str, StoredTensor]]:
        """With the place of their graph: initializers, Constant nodes, dequantized ones, then those of inner graphs."""
        own: dict[str, OnnxTensor] = {}
        for message in graph.initializers:
            yield from self._add(own, message, graph.place, least=1)
        for node in graph.nodes:
            if node.op_type == "Constant" and node.tensor and node.outputs:
                yield from self._add(own, node.tensor, graph.place, least=2, name=node.outputs[0])
        scope = ChainMap(own, outer)
        for node in graph.nodes:
            if node.op_type == "DequantizeLinear" and (tensor := dequantized(node, scope)):
                yield graph.place, tensor
        for inner in graph.inner:
            yield from self._weights(inner, scope)

    def _add(
        self, own: dict[str, OnnxTensor], message: Message, place: str, least: int, name: str = ""
    ) -> Iterator[tuple[str, OnnxTensor]]:
        """Enters a constant into the scope; gives it where it is a weight of `least` elements or more."""
        found = initializer(self.data, message.start, message.stop, message.where)
        name = name or found.name
        if name in own or not name:
            reason = "two tensors of one name" if name else "a tensor without a name"
            raise CheckpointError(reason, file=self.source.path, where=name or message.where, offset=message.start)
        if found.data_type != STRING:
            own[name] = self._tensor(found, message, name)
            if _is_weight(own[name]) and own[name].count >= least:
                yield place, own[name]

    def _tensor(self, found: Initializer, message: Message, name: str) -> OnnxTensor:
        count, bits = math.prod(found.dims), onnx_type(found.data_type).bits
        size = -(-count * bits // 8)
        if len(found.dims) > _MAX_DIMS or any(dim < 0 for dim in found.dims) or count >= 1 << 60:
            raise self._bad("impossible shape", name, message, f"at most {_MAX_DIMS} counts", list(found.dims))
        if found.external and bits:
            entries = external_entries(self.data, message.start, message.stop, message.where)
            source, offset = self.external.place(entries, size, name)
            return OnnxTensor(source, name, found.data_type, found.dims, offset, size)
        length = message.stop - message.start
        typed = not found.size and count > 0
        if bits and (count > 2 * length if typed else found.size != size):
            have = f"a tensor of {length}" if typed else found.size
            raise self._bad("dims disagree with the data", name, message, f"{size} bytes", have)
        place = (message.start, length, True) if typed else (found.offset, found.size, False)
        return OnnxTensor(self.source, name, found.data_type, found.dims, *place)

    def _bad(self, reason: str, name: str, message: Message, expected: object, found: object) -> CheckpointError:
        return CheckpointError(
            reason, file=self.source.path, where=name, offset=message.start, expected=expected, found=found
        )


def _is_weight(tensor: OnnxTensor) -> bool:
    """Not scalars and not empty ones; integers of 64 bits in fewer than two dimensions are shapes, axes and indices."""
    if tensor.type_name == "I64" and len(tensor.shape) < 2:
        return False
    return bool(tensor.shape) and tensor.count > 0
