"""Small ONNX models of one layer, with given weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Float32 = npt.NDArray[np.float32]
SIDE = 6
ROWS = 4


def matmul(weight: Float32) -> ModelProto:
    """y = x @ weight; weight `[K, N]`."""
    inner, outer = weight.shape
    node = helper.make_node("MatMul", ["x", "weight"], ["y"])
    return model([node], {"weight": weight}, (1, ROWS, inner), (1, ROWS, outer))


def conv(weight: Float32, bias: Float32 | None = None) -> ModelProto:
    """A convolution that keeps the size; weight `[N, C, k, k]`."""
    outer, inner, side, _ = weight.shape
    weights = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    node = helper.make_node("Conv", ["x", *weights], ["y"], kernel_shape=[side, side], pads=[side // 2] * 4)
    return model([node], weights, (1, inner, SIDE, SIDE), (1, outer, SIDE, SIDE))


def model(
    nodes: list[NodeProto], weights: dict[str, Float32], given: tuple[int, ...], result: tuple[int, ...]
) -> ModelProto:
    """From `x` to `y`."""
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
