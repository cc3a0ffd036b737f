"""fp16: patch(compile(A), B) is compile(B), the whole file, for random shapes of every operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from pipeline.toolchain.rknn import RknnModel, compile_rknn
from pipeline.toolchain.rknn_decode import decode_rknn
from tests.helpers import onnx_layers
from tests.helpers.rknn_proof import patched, random_arrays, with_arrays

SEED = 41
INNER, OUTER = (36, 40, 72), (3, 17, 20, 33)


def layers() -> list[tuple[str, onnx.ModelProto]]:
    """Sizes that fill tiles and that do not, those of the facts and random ones; runs along K."""
    draw = np.random.default_rng(SEED)
    sizes = [(int(draw.choice(INNER)), int(draw.choice(OUTER))) for _ in range(9)]
    sizes += [(int(draw.integers(1, 300)), int(draw.integers(1, 150))) for _ in range(15)]
    found = []
    for index, (inner, outer) in enumerate(sizes):
        operator = ("matmul", "conv1", "conv3")[index % 3]
        found.append((f"{operator}-{inner}-{outer}", layer(operator, inner, outer)))
    found += [(f"{operator}-2048-33", layer(operator, 2048, 33)) for operator in ("matmul", "conv1")]
    return found


def layer(operator: str, inner: int, outer: int) -> onnx.ModelProto:
    """MatMul without a bias, convolutions with one."""
    if operator == "matmul":
        return onnx_layers.matmul(np.zeros((inner, outer), np.float32))
    side = int(operator.removeprefix("conv"))
    return onnx_layers.conv(np.zeros((outer, inner, side, side), np.float32), np.zeros(outer, np.float32))


@pytest.mark.parametrize(("name", "model"), layers(), ids=[name for name, _ in layers()])
def test_patched_file_is_the_compiled_one(name: str, model: onnx.ModelProto, tmp_path: Path) -> None:
    print(name, "seed", SEED)
    old, new = (random_arrays(model, seed) for seed in (1, 2))
    files = [tmp_path / "old.rknn", tmp_path / "new.rknn"]
    models = [with_arrays(model, arrays) for arrays in (old, new)]
    compile_rknn([RknnModel(data, file) for data, file in zip(models, files, strict=True)])
    layout = decode_rknn(onnx.load_from_string(models[0]), files[0])
    assert files[0].read_bytes() != files[1].read_bytes()
    assert patched(files[0], layout, old) == files[0].read_bytes()
    assert patched(files[0], layout, new) == files[1].read_bytes()
