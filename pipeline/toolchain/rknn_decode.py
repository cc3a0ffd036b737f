"""From an ONNX model to the layout of the `.rknn` that the toolkit makes of it, by marker builds."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from layouts.byte_markers import BUILDS as BYTE_BUILDS
from layouts.byte_markers import ByteMarkers
from layouts.decode import FloatMarkers, decode_float_engine
from layouts.decode_affine import Part, Rule, decode_affine_engine, scale_range
from layouts.markers import FP16_MIDDLE, MarkedTensor, choose_alphabet, number_tensors
from layouts.stored import EngineLayout, StoredTensor
from pipeline.container.blob import read_blob, weight_blob
from pipeline.errors import DecodeRefused, ToolchainError
from pipeline.rknn.walk import RknnEngine, walk_rknn
from pipeline.toolchain.rknn import TARGET, RknnModel, compile_rknn
from pipeline.toolchain.rknn_markers import Float32, Weight, weights_of, with_weights
from pipeline.toolchain.rknn_runs import weight_runs

KIND = "model"
CONFIRM_SEED = 7_700
BUILDS = 2


def decode_fp16(model: onnx.ModelProto, target: str = TARGET) -> EngineLayout:
    """The layout of the fp16 engine of a model: two marker builds and a confirming one are compiled and decoded.

    Parameters
    ----------
    model : its weights do not matter

    Raises
    ------
    ToolchainError : the toolkit, or a model that is more than convolutions and matrix products
    DecodeRefused : bytes that the markers do not explain
    """
    weights = weights_of(model)
    markers = _markers(weights)
    confirming = draw(weights, CONFIRM_SEED)
    every = slice(0, max(tensor.grid[0] for tensor in markers.tensors))
    marked = [{t.name: markers.values(t.name, build, every) for t in markers.tensors} for build in range(BUILDS)]
    with tempfile.TemporaryDirectory(prefix="rknn-markers-") as directory:
        builds = compile_builds(model, [*marked, confirming], Path(directory), target)
        blob = weight_blob(builds[0])
        blobs = [read_blob(build) for build in builds]
        try:
            layout = decode_float_engine(
                KIND, (blob.name, blob.offset), blobs, markers, lambda name, rows: confirming[name][rows]
            )
        except DecodeRefused as error:
            raise error.in_file(builds[0]) from None
    return with_axes(layout, weights)


def decode_int8(model: onnx.ModelProto, samples: Sequence[Sequence[Float32]], target: str = TARGET) -> EngineLayout:
    """The layout of the w8a8 engine of a model: eight marker builds and a confirming one are compiled and decoded.

    The scales of activations follow from weights and samples: the layout has those of the confirming build, and
    `layout_of_engine` puts in another engine's.

    Parameters
    ----------
    samples : one list of inputs for each calibration sample

    Raises as `decode_fp16` does.
    """
    weights = weights_of(model)
    if single := [weight.name for weight in weights if weight.shape[0] == 1]:
        reason = "int8 weights of one output: their scale and zero point are among the commands"
        raise ToolchainError(reason, where=", ".join(single))
    markers = ByteMarkers(number_tensors((weight.name, weight.shape) for weight in weights))
    builds = [_byte_build(weights, markers, build) for build in range(BYTE_BUILDS)] + [draw(weights, CONFIRM_SEED)]
    with tempfile.TemporaryDirectory(prefix="rknn-markers-") as directory:
        files = compile_builds(model, builds, Path(directory), target, samples)
        engines = [walk_rknn(file) for file in files]
        rules = [engine_rules(engine, weights, matrices) for engine, matrices in zip(engines, builds, strict=True)]
        blob, confirming, runs = weight_blob(files[0]), builds[-1], weight_runs(engines[0], weights)
        try:
            layout = decode_affine_engine(
                KIND,
                (blob.name, blob.offset),
                [read_blob(file) for file in files],
                markers,
                lambda name, build: rules[build][name],
                lambda name, rows: confirming[name][rows],
                [run.part for run in runs],
                _constants(engines[0], blob.offset),
            )
        except DecodeRefused as error:
            raise error.in_file(files[0]) from None
    return with_axes(layout, weights, {run.part.name: run.part for run in runs})


def _byte_build(weights: Sequence[Weight], markers: ByteMarkers, build: int) -> dict[str, Float32]:
    matrices: dict[str, Float32] = {}
    for weight in weights:
        matrices[weight.name] = markers.values(weight.name, build, slice(0, weight.shape[0]))
        if weight.bias:
            matrices[weight.bias] = markers.bias(weight.name, build)[None]
    return matrices


def _constants(engine: RknnEngine, start: int) -> list[slice]:
    """The bytes of the blob that hold weights."""
    blobs = [tensor.data for tensor in engine.constants() if tensor.data is not None]
    return [slice(blob.offset - start, blob.offset - start + blob.size) for blob in blobs]


def engine_rules(engine: RknnEngine, weights: Sequence[Weight], matrices: Mapping[str, Float32]) -> dict[str, Rule]:
    """How an engine stores each weight, or each run of one that the compiler has cut along its columns.

    Parameters
    ----------
    matrices : the stored matrices that the engine was compiled from

    Raises ToolchainError for a weight that no operator takes beside one quantized input.
    """
    tensors = {tensor.name: tensor for tensor in engine.tensors}
    rules = {}
    for run in weight_runs(engine, weights):
        part, given = run.part, tensors[run.input]
        if len(given.limits) != 2:
            raise ToolchainError(
                "a weight that is not multiplied with a quantized input", file=engine.path, where=part.name
            )
        (zero,) = given.zero_points
        own = matrices[part.matrix][:, part.first : part.stop]
        rules[part.name] = Rule(*scale_range(own), given.exact_scale, zero, run.bias)
    return rules


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


def with_axes(layout: EngineLayout, weights: Sequence[Weight], parts: Mapping[str, Part] | None = None) -> EngineLayout:
    """The layout with the axes of the source's arrays, and which columns of them runs are."""
    axes = {weight.name: weight for weight in weights}
    whole = {weight.name: Part(weight.name, weight.name, 0, weight.shape[1]) for weight in weights}
    known = whole | dict(parts or {})
    return replace(
        layout,
        tensors=tuple(
            _with_axes(t, axes[known[t.name].matrix], known[t.name]) if t.name in known else t for t in layout.tensors
        ),
    )


def _with_axes(tensor: StoredTensor, weight: Weight, part: Part) -> StoredTensor:
    if part.name != part.matrix:
        columns = (part.first, part.stop)
        return replace(tensor, dims=weight.dims, order=weight.order, source=part.matrix, columns=columns)
    plain = weight.dims == weight.shape and weight.order == (0, 1)
    return tensor if plain else replace(tensor, dims=weight.dims, order=weight.order)
