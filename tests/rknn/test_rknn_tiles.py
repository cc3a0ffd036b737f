"""What docs/rknn-file.md says of the file, on files that the toolkit makes here: names, shapes, and the order of every byte."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.rknn.walk import TILE_AXES, RknnEngine, walk_rknn
from pipeline.toolchain.rknn import RknnModel, compile_rknn
from tests.helpers import onnx_layers

FLOAT_CONVS = [(17, 40, 3), (20, 17, 3), (33, 72, 1)]
INTEGER_CONVS = [(33, 72, 1), (20, 17, 3)]
MATMULS = [(72, 33), (2048, 20)]


def normal(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def extremes(shape: tuple[int, ...]) -> np.ndarray:
    """Steps of 0.01; every row holds -128 and 127 of them, so that the scale is 0.01 and nothing is shifted."""
    steps = np.random.default_rng(shape).integers(-128, 128, shape)
    steps.reshape(shape[0], -1)[:, :2] = -128, 127
    return (steps * 0.01).astype(np.float32)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RknnEngine]:
    directory = tmp_path_factory.mktemp("tiles")
    models = {}
    for n, c, k in FLOAT_CONVS:
        models[f"conv-{n}-{c}-{k}"] = onnx_layers.conv(normal((n, c, k, k)), normal((n,)))
    for k, n in MATMULS:
        models[f"matmul-{k}-{n}"] = onnx_layers.matmul(normal((k, n)))
    jobs = [RknnModel(model.SerializeToString(), directory / f"{name}.rknn") for name, model in models.items()]
    for n, c, k in INTEGER_CONVS:
        samples = [[normal((1, c, onnx_layers.SIDE, onnx_layers.SIDE))]]
        data = onnx_layers.conv(extremes((n, c, k, k))).SerializeToString()
        jobs.append(RknnModel(data, directory / f"int8-{n}-{c}-{k}.rknn", samples))
    compile_rknn(jobs)
    return {job.output.stem: walk_rknn(job.output) for job in jobs}


def in_tiles(weight: np.ndarray, stored: tuple[int, ...]) -> np.ndarray:
    """The elements of `[N, C, h, w]` in the order of the file, one by one, as the stored shape says."""
    groups = [stored[i : i + TILE_AXES] for i in range(0, len(stored), TILE_AXES)]
    found, row = [], 0
    while groups:
        beside, columns = [], 0
        while columns < weight.shape[1]:
            beside.append(groups.pop(0))
            columns += beside[-1][1] * beside[-1][5]
        rows_short = max(0, row + beside[0][0] * beside[0][4] - weight.shape[0])
        padded = np.pad(weight, [(0, rows_short), (0, columns - weight.shape[1]), (0, 0), (0, 0)])
        for _ in range(beside[0][0]):
            column = 0
            for _, tiles, high, wide, rows, cols in beside:
                for tile in range(column, column + tiles * cols, cols):
                    for y in range(high):
                        found += [padded[row : row + rows, tile : tile + cols, y, x].ravel() for x in range(wide)]
                column += tiles * cols
            row += beside[0][4]
    return np.concatenate(found)


def bytes_of(engine: RknnEngine, name: str) -> bytes:
    (tensor,) = (tensor for tensor in engine.constants() if tensor.name == name)
    assert tensor.data
    return engine.path.read_bytes()[tensor.data.offset : tensor.data.stop]


@pytest.mark.parametrize(("n", "c", "k"), FLOAT_CONVS)
def test_float_convolution(engines: dict[str, RknnEngine], n: int, c: int, k: int) -> None:
    engine = engines[f"conv-{n}-{c}-{k}"]
    (tensor,) = (tensor for tensor in engine.tensors if tensor.name == "weight")
    assert (tensor.shape, tensor.dtype) == ((n, c, k, k), "FP16")
    expected = in_tiles(normal((n, c, k, k)).astype(np.float16), tensor.stored_shape)
    assert bytes_of(engine, "weight") == expected.tobytes()
    bias = normal((n,))
    assert bytes_of(engine, "bias") == np.pad(bias, (0, len(bytes_of(engine, "bias")) // 4 - n)).tobytes()


@pytest.mark.parametrize(("n", "c", "k"), INTEGER_CONVS)
def test_integer_convolution(engines: dict[str, RknnEngine], n: int, c: int, k: int) -> None:
    engine = engines[f"int8-{n}-{c}-{k}"]
    (tensor,) = (tensor for tensor in engine.tensors if tensor.name == "weight")
    steps = np.rint(extremes((n, c, k, k)) / 0.01).astype(np.int8)
    assert bytes_of(engine, "weight") == in_tiles(steps, tensor.stored_shape).tobytes()
    (given,) = (tensor for tensor in engine.tensors if tensor.kind == "input")
    assert len(given.scales) == len(given.zero_points) == 1
    # 64 bytes for 8 rows: the bias, minus the zero points, the scales as parts of 2**14 of the largest
    blocks = np.frombuffer(bytes_of(engine, "weight_bias_0"), np.uint8).reshape(-1, 64)
    bias = np.ascontiguousarray(blocks[:, :32]).view("<i4").ravel()
    assert np.array_equal(bias[:n], -given.zero_points[0] * steps.reshape(n, -1).sum(1, dtype=np.int64))
    assert not np.ascontiguousarray(blocks[:, 32:48]).any()
    scales = np.ascontiguousarray(blocks[:, 48:]).view("<i2").ravel()
    assert (scales[:n] == 1 << 14).all() and not scales[n:].any()


def test_matmul_is_a_convolution_of_the_transpose(engines: dict[str, RknnEngine]) -> None:
    engine = engines["matmul-72-33"]
    (tensor,) = (tensor for tensor in engine.tensors if tensor.name == "weight")
    weight = normal((72, 33)).T[:, :, None, None].astype(np.float16)
    assert bytes_of(engine, "weight") == in_tiles(weight, tensor.stored_shape).tobytes()


def test_runs_of_a_cut_matmul_are_named_in_order(engines: dict[str, RknnEngine]) -> None:
    engine = engines["matmul-2048-20"]
    runs = sorted((t for t in engine.constants() if "_tile" in t.name), key=lambda tensor: tensor.name)
    assert len(runs) > 1
    weight, first = normal((2048, 20)).T[:, :, None, None].astype(np.float16), 0
    for run in runs:
        part = weight[:, first : first + run.shape[1]]
        assert bytes_of(engine, run.name) == in_tiles(part, run.stored_shape).tobytes()
        first += run.shape[1]
    assert first == 2048
