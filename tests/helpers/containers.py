"""Small engine containers made with the `onnx` package, one knob per thing that can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

BF16, U32 = TensorProto.BFLOAT16, TensorProto.UINT32


def blob(name: str, data: bytes) -> onnx.TensorProto:
    return TensorProto(name=name, data_type=TensorProto.UINT8, dims=[len(data)], raw_data=data)


def graph_info(microcode: str, weights: str | None, **extra: Any) -> str:
    params = [] if weights is None else [{"name": "params", "const_data_key": weights, **extra}]
    return json.dumps({"name": "npu", "dotneus": [{"neu_key": microcode, "batch": 1, "extra_inputs": params}]})


def container(nodes: list[onnx.NodeProto], blobs: list[onnx.TensorProto]) -> onnx.ModelProto:
    """A model with one bf16 input `x` and one output `y`."""
    inputs = [helper.make_tensor_value_info("x", BF16, [1, 3])]
    outputs = [helper.make_tensor_value_info("y", U32, [1, "n"])]
    graph = helper.make_graph(nodes, "ax-model", inputs, outputs, initializer=blobs)
    return helper.make_model(graph, producer_name="Pulsar2", doc_string="Pulsar2 Version:  7.0")


def neu(name: str = "npu_0", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("neu mode", ["x"], ["y"], name=name, **attributes)


def small() -> onnx.ModelProto:
    """The smallest engine of generation 7.0: one group, 5 bytes of microcode, 7 bytes of weights."""
    blobs = [blob("npu_params", b"weights"), blob("npu_dyn_params", b""), blob("npu_neu", b"micro")]
    return container([neu(npu_graph_info=graph_info("npu_neu", "npu_params"), version=1)], blobs)


def save(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path
