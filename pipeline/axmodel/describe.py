"""What a walk found, as plain values for people and for JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.axmodel.extra_data import KEY, read_extra_data
from pipeline.axmodel.walk import Engine, EngineIo, ShapeGroup, walk_engine


def describe_engine(engine: Engine) -> dict[str, Any]:
    """The engine as JSON values: container, shape groups with io, blobs with absolute byte offsets."""
    return {
        "file": engine.path.name,
        "bytes": engine.size,
        "producer": engine.producer,
        "doc": engine.doc,
        "generation": engine.generation,
        "weights": engine.weights.name,
        "groups": [_group(group) for group in engine.groups],
        "blobs": [{"name": blob.name, "offset": blob.offset, "bytes": blob.size} for blob in engine.blobs],
        KEY: read_extra_data(engine.metadata),
    }


def _group(group: ShapeGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "microcode": [blob.name for blob in group.microcode],
        "weights": [blob.name for blob in group.weights],
        "inputs": [_io(io) for io in group.inputs],
        "outputs": [_io(io) for io in group.outputs],
    }


def _io(io: EngineIo) -> dict[str, Any]:
    return {"name": io.name, "dtype": io.dtype, "shape": list(io.shape)}


def describe_directory(directory: Path) -> list[dict[str, Any]]:
    """Every engine of a directory, by name."""
    return [describe_engine(walk_engine(path)) for path in sorted(directory.glob("*.axmodel"))]
