"""Engines of all three container generations, by hand from the table of facts: what differs is where the keys stand.

Every builder takes the bytes of its weight initializers and gives a model whose `x` runs to `y`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.helpers.containers import blob, container, neu

Build = Callable[[Sequence[bytes]], onnx.ModelProto]
MICROCODE = b"\x10\0\0\0microcode"


def dotneu(microcode: str, *constants: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"neu_key": microcode, "batch": 1, "extra_inputs": list(constants), **extra}


def const(key: str, **extra: Any) -> dict[str, Any]:
    return {"name": "params", "const_data_key": key, **extra}


def info(*dotneus: dict[str, Any], **extra: Any) -> str:
    return json.dumps({"name": "npu", "dotneus": list(dotneus), **extra})


def generation_1_1(weights: Sequence[bytes]) -> onnx.ModelProto:
    return container([neu(neu=f"npu_{i}_data") for i in range(len(weights))], named("npu_{}_data", weights))


def generation_1_6(weights: Sequence[bytes]) -> onnx.ModelProto:
    nodes = [
        neu(
            f"npu_{i}",
            npu_graph_info=info(dotneu(f"npu_{i}_b1_data", const(f"npu_{i}_params", type="DotNeuInputConst"))),
        )
        for i in range(len(weights))
    ]
    code = [blob(f"npu_{i}_b1_data", MICROCODE) for i in range(len(weights))]
    return container(nodes, [*named("npu_{}_params", weights), *code])


def generation_7_0(weights: Sequence[bytes]) -> onnx.ModelProto:
    """One subgraph that names all of `weights`, and empty dynamic ones."""
    names = ["npu_params", *(f"npu_params_{i}" for i in range(1, len(weights)))]
    inputs = [*(const(name) for name in names), const("npu_dyn_params")]
    node = neu("subgraph_npu_0", npu_graph_info=info(dotneu("subgraph_npu_0_b1_neu", *inputs)), version=1)
    stored = [blob(name, data) for name, data in zip(names, weights, strict=True)]
    return container([node], [*stored, blob("npu_dyn_params", b""), blob("subgraph_npu_0_b1_neu", MICROCODE)])


def shape_groups(weights: Sequence[bytes]) -> onnx.ModelProto:
    """A decode and a prefill node, each with two batches, all on the same constants."""
    names = [f"npu_params_{i}" for i in range(len(weights))]
    code = [f"subgraph_npu_{g}_b{b}_neu" for g in range(2) for b in (1, 4)]
    nodes = [
        neu(f"g{g}", npu_graph_info=info(*(dotneu(key, *map(const, names)) for key in code[2 * g : 2 * g + 2])))
        for g in range(2)
    ]
    return container(nodes, [*(blob(key, MICROCODE) for key in code), *named("npu_params_{}", weights)])


def with_cpu_nodes(weights: Sequence[bytes]) -> onnx.ModelProto:
    """Subgraphs with a CPU node before, between and behind, whose initializers are typed, raw, text and binary."""
    nodes, blobs = [], []
    for i, data in enumerate(weights):
        nodes += [helper.make_node("Mul", [f"v{i}", f"cpu_{i}"], [f"w{i}"], name=f"cpu{i}", raw=b"\xff\xfe")]
        keys = info(dotneu(f"code_{i}", const(f"params_{i}")))
        nodes += [helper.make_node("neu mode", [f"w{i}"], [f"v{i + 1}"], name=f"n{i}", npu_graph_info=keys)]
        blobs += [blob(f"params_{i}", data), blob(f"code_{i}", MICROCODE), cpu_constant(f"cpu_{i}", i)]
    return container(nodes, blobs)


def cpu_constant(name: str, kind: int) -> onnx.TensorProto:
    if kind % 3 == 0:
        return TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2], float_data=[1.0, 2.0])
    if kind % 3 == 1:
        return TensorProto(name=name, data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"])
    return numpy_helper.from_array(np.arange(3, dtype=np.float32), name)


def named(pattern: str, weights: Sequence[bytes]) -> list[onnx.TensorProto]:
    return [blob(pattern.format(i), data) for i, data in enumerate(weights)]


BUILDS: dict[str, Build] = {
    "1.1": generation_1_1,
    "1.6": generation_1_6,
    "7.0": generation_7_0,
    "groups": shape_groups,
    "cpu": with_cpu_nodes,
}
