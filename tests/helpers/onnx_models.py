"""ONNX models made with the `onnx` package: the second opinion on what they hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PROTO = {
    "F32": (TensorProto.FLOAT, np.float32),
    "F64": (TensorProto.DOUBLE, np.float64),
    "F16": (TensorProto.FLOAT16, np.float16),
    "BF16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "F8_E4M3": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    "F8_E4M3FNUZ": (TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2": (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
    "F8_E5M2FNUZ": (TensorProto.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
    "F4_E2M1": (TensorProto.FLOAT4E2M1, ml_dtypes.float4_e2m1fn),
    "I4": (TensorProto.INT4, ml_dtypes.int4),
    "U4": (TensorProto.UINT4, ml_dtypes.uint4),
    "I8": (TensorProto.INT8, np.int8),
    "U8": (TensorProto.UINT8, np.uint8),
    "I16": (TensorProto.INT16, np.int16),
    "U16": (TensorProto.UINT16, np.uint16),
    "I32": (TensorProto.INT32, np.int32),
    "U32": (TensorProto.UINT32, np.uint32),
    "I64": (TensorProto.INT64, np.int64),
    "U64": (TensorProto.UINT64, np.uint64),
    "BOOL": (TensorProto.BOOL, np.bool_),
}


def array_of(kind: str, shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    """Values of the type, small enough for every one, negative ones where it has them."""
    values = np.random.default_rng(seed).integers(0 if kind[0] in "UB" else -6, 7, shape)
    return values.astype(np.float32).astype(PROTO[kind][1])


def tensor(name: str, array: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(array, name)


def typed_tensor(name: str, kind: str, array: np.ndarray) -> TensorProto:
    """The elements in the typed field instead of `raw_data`."""
    return helper.make_tensor(name, PROTO[kind][0], array.shape, array.reshape(-1))


def constant(name: str, array: np.ndarray) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=tensor(f"value of {name}", array))


def graph(
    tensors: Iterable[TensorProto] = (), nodes: Iterable[onnx.NodeProto] = (), name: str = "g"
) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [], list(tensors))


def branch(output: str, **branches: onnx.GraphProto) -> onnx.NodeProto:
    return helper.make_node("If", ["condition"], [output], **branches)


def write_model(path: Path, main: onnx.GraphProto, **more: Any) -> Path:
    path.write_bytes(helper.make_model(main, **more).SerializeToString())
    return path


def write_tensors(path: Path, *tensors: TensorProto) -> Path:
    return write_model(path, graph(tensors))


def package_reading(path: Path) -> dict[str, np.ndarray]:
    """Initializers of the main graph, external ones too, as the package reads them, float32."""
    model = onnx.load(path)
    return {item.name: numpy_helper.to_array(item).astype(np.float32) for item in model.graph.initializer}
