"""Marker builds of an ONNX model: its own graph with other weights, compiled by rknn-toolkit2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from pipeline.errors import ToolchainError

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Weight:
    """A weight of a layer, as the stored matrix sees it: `array.transpose(order).reshape(shape)`.

    name : of the initializer
    bias : of the initializer that is added to the layer's outputs, "" for none
    nodes : names by which the compiler may call the layer
    """

    name: str
    dims: tuple[int, ...]
    order: tuple[int, ...]
    bias: str = ""
    nodes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        rows = self.dims[self.order[0]]
        return rows, prod(self.dims) // rows

    def matrix(self, array: Float32) -> Float32:
        return np.ascontiguousarray(array.transpose(self.order).reshape(self.shape))

    def array(self, matrix: Float32) -> Float32:
        moved = tuple(self.dims[axis] for axis in self.order)
        return np.ascontiguousarray(matrix.reshape(moved).transpose(np.argsort(self.order)))


def weights_of(model: onnx.ModelProto) -> tuple[Weight, ...]:
    """The weights of all convolutions and matrix products, in the order of the graph.

    Raises ToolchainError for a float constant of more than one element that is none of them: a refit would leave it as it is.
    """
    constants = {
        tensor.name: tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT
    }
    found = [weight for node in model.graph.node for weight in _weights(model, node, constants)]
    names = {name for weight in found for name in (weight.name, weight.bias)}
    others = [name for name, tensor in constants.items() if name not in names and prod(tensor.dims) > 1]
    if others:
        raise ToolchainError("constants that are no weights of Conv, Gemm or MatMul", where=", ".join(others))
    if not found:
        raise ToolchainError("the model has no Conv, Gemm or MatMul with constant weights")
    if len(names - {""}) != sum(1 + bool(weight.bias) for weight in found):
        raise ToolchainError("a weight that two layers share")
    return tuple(found)


def _weights(model: onnx.ModelProto, node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> Iterator[Weight]:
    if node.op_type not in ("Conv", "Gemm", "MatMul") or node.input[1] not in constants:
        return
    name, dims = node.input[1], tuple(constants[node.input[1]].dims)
    given = {attribute.name: attribute for attribute in node.attribute}
    turned = node.op_type == "MatMul" or (node.op_type == "Gemm" and not ("transB" in given and given["transB"].i))
    bias = node.input[2] if len(node.input) > 2 else _added(model, node, constants) if node.op_type == "MatMul" else ""
    if (turned and len(dims) != 2) or (bias and bias not in constants):
        raise ToolchainError(f"a {node.op_type} that is not supported", where=name, found=list(dims))
    yield Weight(name, dims, (1, 0) if turned else tuple(range(len(dims))), bias, (node.name, *node.output))


def _added(model: onnx.ModelProto, node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> str:
    """The vector that the only reader of a product adds to it."""
    readers = [other for other in model.graph.node if node.output[0] in other.input]
    if len(readers) != 1 or readers[0].op_type != "Add":
        return ""
    names = [name for name in readers[0].input if name in constants and len(constants[name].dims) == 1]
    return names[0] if names else ""


def with_weights(model: onnx.ModelProto, read: Callable[[str], Float32]) -> bytes:
    """The serialized model with every weight and bias replaced by `read(name)`, an array of the same shape."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    names = {name for weight in weights_of(model) for name in (weight.name, weight.bias)}
    for tensor in changed.graph.initializer:
        if tensor.name in names:
            tensor.CopyFrom(numpy_helper.from_array(read(tensor.name), tensor.name))
    data: bytes = changed.SerializeToString(deterministic=True)
    return data
