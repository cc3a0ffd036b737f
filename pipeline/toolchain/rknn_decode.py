"""From an ONNX model to the layout of the `.rknn` that the toolkit makes of it, by marker builds."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from layouts.byte_markers import BUILDS as BYTE_BUILDS
from layouts.byte_markers import MOST_SEEDS, ByteMarkers
from layouts.confirm import check_known
from layouts.decode import FloatMarkers, decode_float_engine
from layouts.decode_affine import decode_affine_engine, with_rules
from layouts.markers import FP16_MIDDLE, MarkedTensor, choose_alphabet, number_tensors
from layouts.stored import EngineLayout, to_matrix
from pipeline.container.blob import Bytes, read_blob, weight_blob
from pipeline.errors import DecodeRefused, ToolchainError
from pipeline.refit.outside import outside_sha256
from pipeline.rknn.walk import RknnEngine, walk_rknn
from pipeline.toolchain.rknn import TARGET, RknnModel, compile_rknn
from pipeline.toolchain.rknn_engine import engine_rules, relocated, with_axes
from pipeline.toolchain.rknn_markers import Float32, Weight, weights_of, with_weights
from pipeline.toolchain.rknn_runs import weight_runs

KIND = "model"
CONFIRM_SEED = 7_700
UNUSED = "tempMC11"
BUILDS = 2


def decode_rknn(model: onnx.ModelProto, engine: Path, target: str = TARGET) -> EngineLayout:
    """The layout of an engine, fp16 or w8a8, by marker builds of the model that it was compiled from; confirmed on it.

    Raises
    ------
    ToolchainError : the toolkit, or a model that is more than convolutions and matrix products
    DecodeRefused : bytes that the markers do not explain; an engine that the layout does not predict from the model's weights
    """
    weights, walked = weights_of(model), walk_rknn(engine)
    quantized = any(tensor.dtype == "S8" for tensor in walked.constants() if not tensor.name.startswith(UNUSED))
    layout, origin = (_decode_int8 if quantized else _decode_fp16)(model, weights, target)
    layout = relocated(layout, origin, walked)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    if quantized:
        matrices = {weight.name: weight.matrix(arrays[weight.name]) for weight in weights}
        layout = with_rules(layout, engine_rules(walked, weights, matrices))
    layout = replace(layout, outside=outside_sha256(engine, layout))

    def known(name: str, rows: slice) -> Float32:
        if name in layout.names():
            return to_matrix(layout[name], arrays[layout[name].source_name]).reshape(layout[name].shape)[rows]
        return arrays[name].reshape(1, -1)

    try:
        check_known(layout, read_blob(engine), known)
    except DecodeRefused as error:
        raise error.in_file(engine) from None
    return layout


def _decode_fp16(model: onnx.ModelProto, weights: Sequence[Weight], target: str) -> tuple[EngineLayout, RknnEngine]:
    """Two marker builds and a confirming one; the layout, and the engine that it is of."""
    markers = _markers(weights)
    confirming = draw(weights, CONFIRM_SEED)
    every = slice(0, max(tensor.grid[0] for tensor in markers.tensors))
    marked = [{t.name: markers.values(t.name, build, every) for t in markers.tensors} for build in range(BUILDS)]
    with tempfile.TemporaryDirectory(prefix="rknn-markers-") as directory:
        files = compile_builds(model, [*marked, confirming], Path(directory), target)
        blob, origin = weight_blob(files[0]), walk_rknn(files[0])
        try:
            layout = decode_float_engine(
                KIND,
                (blob.name, blob.offset),
                [_only_constants(file) for file in files],
                markers,
                lambda name, rows: confirming[name][rows],
            )
        except DecodeRefused as error:
            raise error.in_file(files[0]) from None
    return with_axes(layout, weights), origin


def _decode_int8(model: onnx.ModelProto, weights: Sequence[Weight], target: str) -> tuple[EngineLayout, RknnEngine]:
    """Eight marker builds and a confirming one; the layout with the constants of the last, and the engine that it is of.

    A build may be a line longer than another, for reasons of its own (fields of the FlatBuffer that are 0 are left out): then
    other markers are tried.
    """
    if single := [weight.name for weight in weights if weight.shape[0] == 1]:
        reason = "int8 weights of one output: their scale and zero point are among the commands"
        raise ToolchainError(reason, where=", ".join(single))
    samples = draw_samples(model)
    for seed in range(MOST_SEEDS):
        markers = ByteMarkers(number_tensors((weight.name, weight.shape) for weight in weights), seed)
        builds = [_byte_build(weights, markers, build) for build in range(BYTE_BUILDS)]
        builds.append(draw(weights, CONFIRM_SEED + seed))
        with tempfile.TemporaryDirectory(prefix="rknn-markers-") as directory:
            files = compile_builds(model, builds, Path(directory), target, samples)
            if len({file.stat().st_size for file in files}) == 1:
                return _decode_builds(weights, markers, builds, files)
    raise DecodeRefused("marker builds differ in size", where="model", found=f"{MOST_SEEDS} times")


def _decode_builds(
    weights: Sequence[Weight], markers: ByteMarkers, builds: Sequence[dict[str, Float32]], files: Sequence[Path]
) -> tuple[EngineLayout, RknnEngine]:
    engines = [walk_rknn(file) for file in files]
    rules = [engine_rules(engine, weights, matrices) for engine, matrices in zip(engines, builds, strict=True)]
    blob, runs = weight_blob(files[0]), weight_runs(engines[0], weights)
    try:
        layout = decode_affine_engine(
            KIND,
            (blob.name, blob.offset),
            [read_blob(file) for file in files],
            markers,
            lambda name, build: rules[build][name],
            lambda name, rows: builds[-1][name][rows],
            [run.part for run in runs],
            _constants(engines[0], {name for run in runs for name in run.constants}),
        )
    except DecodeRefused as error:
        raise error.in_file(files[0]) from None
    return with_axes(layout, weights, {run.part.name: run.part for run in runs}), engines[0]


def draw_samples(model: onnx.ModelProto) -> list[list[Float32]]:
    """A calibration sample for builds whose ranges of activations do not matter. Raises ToolchainError for an open size."""
    values, constant = np.random.default_rng(CONFIRM_SEED), {tensor.name for tensor in model.graph.initializer}
    sample = []
    for given in model.graph.input:
        shape = [size.dim_value for size in given.type.tensor_type.shape.dim]
        if given.name in constant:
            continue
        if min(shape, default=0) < 1:
            raise ToolchainError("an input without a fixed size", where=given.name, found=shape)
        sample.append(values.normal(size=shape).astype(np.float32))
    return [sample]


def _byte_build(weights: Sequence[Weight], markers: ByteMarkers, build: int) -> dict[str, Float32]:
    matrices: dict[str, Float32] = {}
    for weight in weights:
        matrices[weight.name] = markers.values(weight.name, build, slice(0, weight.shape[0]))
        if weight.bias:
            matrices[weight.bias] = markers.bias(weight.name, build)[None]
    return matrices


def _only_constants(file: Path) -> Bytes:
    """The blob, 0 where no weights are: what the toolkit never set differs there."""
    blob = read_blob(file)
    kept = np.zeros_like(blob)
    for part in _constants(walk_rknn(file)):
        kept[part] = blob[part]
    return kept


def _constants(engine: RknnEngine, names: Collection[str] | None = None) -> list[slice]:
    """The bytes of the blob that hold constants: those of these names, or all."""
    start = engine.body.offset
    wanted = [tensor for tensor in engine.constants() if names is None or tensor.name in names]
    blobs = [tensor.data for tensor in wanted if tensor.data is not None]
    return [slice(blob.offset - start, blob.offset - start + blob.size) for blob in blobs]


def _markers(weights: Sequence[Weight]) -> FloatMarkers:
    """Matrices as fp16, biases as bf16: the toolkit stores these as fp32."""
    shapes: dict[str, tuple[int, ...]] = {}
    for weight in weights:
        shapes[weight.name] = weight.shape
        shapes |= {weight.bias: weight.shape[:1]} if weight.bias else {}
    tensors = tuple(_formed(tensor) for tensor in number_tensors(shapes.items()))
    return FloatMarkers(tensors, choose_alphabet(sum(t.elements for t in tensors), middle=FP16_MIDDLE))


def _formed(tensor: MarkedTensor) -> MarkedTensor:
    return replace(tensor, form="bf16" if len(tensor.shape) == 1 else "fp16")


def draw(weights: Sequence[Weight], seed: int) -> dict[str, Float32]:
    """Seeded values of every weight and bias, as stored matrices."""
    values = np.random.default_rng(seed)
    drawn: dict[str, Float32] = {}
    for weight in weights:
        drawn[weight.name] = values.normal(size=weight.shape).astype(np.float32)
        if weight.bias:
            drawn[weight.bias] = values.normal(size=(1, weight.shape[0])).astype(np.float32)
    return drawn


def compile_builds(
    model: onnx.ModelProto,
    builds: Sequence[dict[str, Float32]],
    directory: Path,
    target: str,
    samples: Sequence[Sequence[Float32]] = (),
) -> list[Path]:
    """Compile the model with the stored matrices of each build in the place of its weights."""
    weights = {weight.name: weight for weight in weights_of(model)}

    def compiled(index: int, matrices: dict[str, Float32]) -> RknnModel:
        def read(name: str) -> Float32:
            return weights[name].array(matrices[name]) if name in weights else matrices[name][0]

        return RknnModel(with_weights(model, read), directory / f"{index}.rknn", samples)

    return compile_rknn([compiled(index, matrices) for index, matrices in enumerate(builds)], target)
