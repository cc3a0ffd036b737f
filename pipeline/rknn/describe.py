"""What a walk of an `.rknn` found, as plain values for people and for JSON."""

from __future__ import annotations

from typing import Any

from pipeline.rknn.walk import RknnEngine, RknnTensor


def describe_rknn(engine: RknnEngine) -> dict[str, Any]:
    """The engine as JSON values: container, tensors with absolute byte offsets, operators, the summary behind the FlatBuffer."""
    return {
        "file": engine.path.name,
        "bytes": engine.size,
        "version": engine.version,
        "compiler": engine.compiler,
        "target": engine.target,
        "source": engine.source,
        "weights": engine.body.name,
        "blobs": [{"name": engine.body.name, "offset": engine.body.offset, "bytes": engine.body.size}],
        "graphs": [
            {
                "tensors": [_tensor(tensor) for tensor in graph.tensors],
                "operators": [
                    {"type": op.kind, "name": op.name, "inputs": list(op.inputs), "outputs": list(op.outputs)}
                    for op in graph.operators
                ],
            }
            for graph in engine.graphs
        ],
        "summary": engine.info,
    }


def _tensor(tensor: RknnTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "kind": tensor.kind,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "stored_shape": list(tensor.stored_shape),
        "scales": list(tensor.scales),
        "zero_points": list(tensor.zero_points),
        "offset": None if tensor.data is None else tensor.data.offset,
        "bytes": 0 if tensor.data is None else tensor.data.size,
    }
