"""w8a8: patch(compile(A), B) has every weight run of compile(B); with B's constants also every zero point, scale and bias."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from layouts.decode_affine import with_rules
from layouts.stored import EngineLayout
from pipeline.errors import ToolchainError
from pipeline.rknn.walk import walk_rknn
from pipeline.toolchain.rknn import RknnModel, compile_rknn
from pipeline.toolchain.rknn_decode import decode_rknn
from pipeline.toolchain.rknn_engine import engine_rules
from pipeline.toolchain.rknn_markers import Float32, weights_of
from tests.helpers.rknn_proof import Arrays, constants, patched, plain_arrays, random_arrays, weight_runs, with_arrays
from tests.rknn.test_rknn_fp16 import INNER, OUTER, layer

SEED = 43


def layers() -> list[tuple[str, onnx.ModelProto]]:
    """Sizes that fill tiles and that do not, those of the facts and random ones."""
    draw = np.random.default_rng(SEED)
    sizes = [(int(draw.choice(INNER)), int(draw.choice(OUTER))) for _ in range(9)]
    sizes += [(int(draw.integers(8, 300)), int(draw.integers(2, 150))) for _ in range(12)]
    operators = ("matmul", "conv1", "conv3")
    named = [(operators[index % 3], inner, outer) for index, (inner, outer) in enumerate(sizes)]
    named += [("matmul", 8192, 20), ("conv1", 8192, 33)]
    return [(f"{operator}-{inner}-{outer}", layer(operator, inner, outer)) for operator, inner, outer in named]


def samples(model: onnx.ModelProto) -> list[list[Float32]]:
    """Two calibration samples whose 0 is not in the middle."""
    draw = np.random.default_rng(SEED)
    shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
    return [[(draw.normal(size=shape) * 2 + 0.5).astype(np.float32)] for _ in range(2)]


def of_engine(layout: EngineLayout, model: onnx.ModelProto, file: Path, arrays: Arrays) -> EngineLayout:
    """The layout with the constants of the engine that was compiled from these weights."""
    weights = weights_of(model)
    matrices = {weight.name: weight.matrix(arrays[weight.name]) for weight in weights}
    return with_rules(layout, engine_rules(walk_rknn(file), weights, matrices))


@pytest.mark.parametrize(("name", "model"), layers(), ids=[name for name, _ in layers()])
def test_patched_weights_are_the_compiled_ones(name: str, model: onnx.ModelProto, tmp_path: Path) -> None:
    print(name, "seed", SEED)
    given = samples(model)
    arrays = [plain_arrays(model, 1), plain_arrays(model, 2), random_arrays(model, 3)]
    files = [tmp_path / f"{index}.rknn" for index in range(3)]
    models = [with_arrays(model, values) for values in arrays]
    compile_rknn([RknnModel(data, file, given) for data, file in zip(models, files, strict=True)])
    first, *others = files
    own = decode_rknn(onnx.load_from_string(models[0]), first)
    assert patched(first, own, arrays[0]) == first.read_bytes()
    assert weight_runs(first, patched(first, own, arrays[1])) == weight_runs(others[0])
    for file, new in zip(others, arrays[1:], strict=True):
        theirs = of_engine(own, model, file, new)
        assert constants(first, patched(first, theirs, new)) == constants(file)


def test_one_output_is_refused(tmp_path: Path) -> None:
    model = layer("conv1", 40, 1)
    data, file = with_arrays(model, plain_arrays(model, 1)), tmp_path / "one.rknn"
    compile_rknn([RknnModel(data, file, samples(model))])
    with pytest.raises(ToolchainError, match="weight: int8 weights of one output"):
        decode_rknn(onnx.load_from_string(data), file)
