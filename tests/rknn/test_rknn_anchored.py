"""fp16 engines of the toolkit decoded from their own weights, with neither markers nor toolkit, and refitted to the byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from layouts.sidecar import read_layout
from tests.helpers.sets import engineset


def write_network(path: Path, seed: int) -> list[str]:
    """A first convolution of three channels, one that fills no tile, and a 1x1; names of the tensors."""
    rng = np.random.default_rng(seed)
    shapes = {"stem": (24, 3, 3, 3), "body": (40, 24, 3, 3), "pointwise": (33, 40, 1, 1)}
    tensors, nodes, last = [], [], "x"
    for name, shape in shapes.items():
        for part, size in (("weight", shape), ("bias", shape[:1])):
            values = rng.standard_normal(size).astype(np.float32) / 8
            tensors.append(numpy_helper.from_array(values, f"{name}.{part}"))
        inputs, pads = [last, f"{name}.weight", f"{name}.bias"], [shape[2] // 2] * 4
        nodes.append(helper.make_node("Conv", inputs, [f"{name}.out"], pads=pads))
        nodes.append(helper.make_node("Relu", [f"{name}.out"], [f"{name}.relu"]))
        last = f"{name}.relu"
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])]
    outputs = [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, 33, 16, 16])]
    graph = helper.make_graph(nodes, "network", values, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, path)
    return [tensor.name for tensor in tensors]


def test_decode_from_the_checkpoint_and_refit(tmp_path: Path) -> None:
    names = write_network(tmp_path / "a.onnx", 1)
    write_network(tmp_path / "b.onnx", 2)
    layout = tmp_path / "a.layout.toml"
    for command in (
        ("rknn", "compile", tmp_path / "a.onnx", "-o", tmp_path / "a.rknn"),
        ("rknn", "compile", tmp_path / "b.onnx", "-o", tmp_path / "b.rknn"),
        ("decode", tmp_path / "a.rknn", "--checkpoint", tmp_path / "a.onnx", "-o", layout, "--strict"),
        (
            "refit",
            tmp_path / "a.rknn",
            "--layout",
            layout,
            "--checkpoint",
            tmp_path / "b.onnx",
            "-o",
            tmp_path / "c.rknn",
        ),
    ):
        done = engineset(*command)
        assert done.returncode == 0, done.stderr
    assert sorted(read_layout(layout).names()) == sorted(names)
    assert (tmp_path / "c.rknn").read_bytes() == (tmp_path / "b.rknn").read_bytes()
