"""Random weights of ONNX models, and what a refit without the toolkit makes of a compiled file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from layouts.encoding import encode_rows
from layouts.stored import EngineLayout, to_matrix
from layouts.view import write_tensor
from pipeline.rknn.walk import walk_rknn

Float32 = npt.NDArray[np.float32]
Arrays = dict[str, Float32]


def random_arrays(model: onnx.ModelProto, seed: int) -> Arrays:
    """Weights of every size and place of 0: rows of one sign, rows of zeros, rows that are tiny."""
    draw = np.random.default_rng(seed)
    arrays = {}
    for tensor in model.graph.initializer:
        shape = tuple(tensor.dims)
        array = draw.normal(size=shape)
        if len(shape) > 1:
            kinds = draw.integers(0, 8, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
            array = np.where(kinds == 0, np.abs(array), np.where(kinds == 1, array * 1e-6, array)) * 2.0 ** -(kinds % 3)
            if shape[0] > 2:
                array[draw.integers(shape[0])] = 0
        arrays[tensor.name] = array.astype(np.float32)
    return arrays


def plain_arrays(model: onnx.ModelProto, seed: int) -> Arrays:
    """Weights whose rows are of one size."""
    draw = np.random.default_rng(seed)
    return {t.name: draw.normal(size=tuple(t.dims)).astype(np.float32) for t in model.graph.initializer}


def with_arrays(model: onnx.ModelProto, arrays: Arrays) -> bytes:
    """The serialized model with other weights."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(arrays[tensor.name], tensor.name))
    data: bytes = changed.SerializeToString(deterministic=True)
    return data


def patched(file: Path, layout: EngineLayout, arrays: Arrays) -> bytes:
    """The file with the weights put into their places by the layout alone."""
    data = np.fromfile(file, np.uint8)
    blob = data[layout.blob_offset : layout.blob_offset + layout.blob_bytes]
    for stored in layout.tensors:
        bias = arrays[stored.bias.tensor] if stored.bias is not None and stored.bias.tensor else None
        write_tensor(
            blob,
            stored,
            encode_rows(stored, to_matrix(stored, arrays[stored.source_name]).reshape(stored.shape), bias=bias),
        )
    return data.tobytes()


def weight_runs(file: Path, data: bytes | None = None) -> dict[str, bytes]:
    """The bytes of every weight of an int8 file; of `data` where it is a changed copy of the file."""
    return {name: part for name, part in constants(file, data).items() if name.endswith(" S8")}


def constants(file: Path, data: bytes | None = None) -> dict[str, bytes]:
    """The bytes of every constant of a file, but for the two that belong to no operator."""
    data = file.read_bytes() if data is None else data
    return {
        f"{tensor.name} {tensor.dtype}": data[tensor.data.offset : tensor.data.offset + tensor.data.size]
        for tensor in walk_rknn(file).constants()
        if tensor.data is not None and not tensor.name.startswith("tempMC11")
    }
