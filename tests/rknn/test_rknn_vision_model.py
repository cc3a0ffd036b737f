"""A small fine-tuned vision model, compiled once: refitted without the toolkit it is what the toolkit makes of the others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from layouts.decode_affine import with_rules
from layouts.sidecar import read_layout
from pipeline.cli.main import run_commands
from pipeline.rknn.walk import walk_rknn
from pipeline.toolchain.rknn import RknnModel, compile_rknn
from pipeline.toolchain.rknn_engine import engine_rules
from pipeline.toolchain.rknn_markers import weights_of
from tests.helpers import onnx_layers
from tests.helpers.rknn_proof import constants, patched, plain_arrays, weight_runs, with_arrays


def network() -> onnx.ModelProto:
    """3x3 with stride, ReLU, 1x1, ReLU, 3x3, pooling, Gemm, ReLU, MatMul and Add: every layer has a bias."""
    shapes = {
        "stem.weight": (24, 3, 3, 3),
        "stem.bias": (24,),
        "mix.weight": (40, 24, 1, 1),
        "mix.bias": (40,),
        "body.weight": (36, 40, 3, 3),
        "body.bias": (36,),
        "fc.weight": (20, 36),
        "fc.bias": (20,),
        "head.weight": (20, 10),
        "head.bias": (10,),
    }
    nodes = [
        helper.make_node(
            "Conv", ["x", "stem.weight", "stem.bias"], ["a"], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]
        ),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "mix.weight", "mix.bias"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "body.weight", "body.bias"], ["e"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", "fc.weight", "fc.bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["i"]),
        helper.make_node("MatMul", ["i", "head.weight"], ["j"]),
        helper.make_node("Add", ["j", "head.bias"], ["y"]),
    ]
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    return onnx_layers.model(nodes, weights, (1, 3, 16, 16), (1, 10))


def alive(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Biases under which every channel passes its rectifier now and then: the toolkit drops one that never does."""
    return {name: np.abs(a) + 4 if name.endswith("bias") else a * 0.2 for name, a in arrays.items()}


def fine_tuned(arrays: dict[str, np.ndarray], seed: int = 5) -> dict[str, np.ndarray]:
    """Every weight moved by some percent."""
    draw = np.random.default_rng(seed)
    return {name: (a + 0.01 * draw.normal(size=a.shape)).astype(np.float32) for name, a in arrays.items()}


@pytest.fixture(params=["fp16", "int8"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """`old` and `new`, as ONNX and compiled."""
    model, draw = network(), np.random.default_rng(2)
    samples = (
        [[draw.normal(size=(1, 3, 16, 16)).astype(np.float32)] for _ in range(3)] if request.param == "int8" else []
    )
    old = alive(plain_arrays(model, 1))
    for name, arrays in (("old", old), ("new", fine_tuned(old))):
        (tmp_path / f"{name}.onnx").write_bytes(with_arrays(model, arrays))
    compile_rknn(
        [RknnModel((tmp_path / f"{n}.onnx").read_bytes(), tmp_path / f"{n}.rknn", samples) for n in ("old", "new")]
    )
    return tmp_path


def engineset(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["engineset", *map(str, words)])
    try:
        return run_commands()
    except SystemExit as stopped:
        return int(stopped.code or 0)


def test_refit_without_the_toolkit(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, layout, out = (files / name for name in ("old.rknn", "new.onnx", "x.layout.toml", "out.rknn"))
    assert engineset(monkeypatch, "rknn", "decode", old, "--checkpoint", files / "old.onnx", "-o", layout) == 0
    monkeypatch.setenv("ENGINESET_RKNN_PYTHON", str(files / "no-toolkit"))
    refit = ("refit", old, "--layout", layout)
    assert engineset(monkeypatch, *refit, "--checkpoint", files / "old.onnx", "-o", files / "same.rknn") == 0
    assert (files / "same.rknn").read_bytes() == old.read_bytes()
    assert engineset(monkeypatch, *refit, "--checkpoint", new, "-o", out) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert engineset(monkeypatch, "locate", layout, "body.weight", 5, 1, 2, 2, "--json") == 0
    element = json.loads(capsys.readouterr().out)
    assert (element["row"], element["col"], element["index"]) == (5, 17, [5, 1, 2, 2])
    assert len(element["scale"]) == (0 if layout.read_text().count('"fp16"') else 2)
    assert engineset(monkeypatch, "verify", out, "--layout", layout, "--checkpoint", new, "--template", old) == 0
    expected = files / "new.rknn"
    runs = weight_runs(expected)
    if not runs:
        assert out.read_bytes() == expected.read_bytes()
        return
    assert weight_runs(out) == runs
    model = onnx.load(new)
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights = weights_of(model)
    matrices = {weight.name: weight.matrix(arrays[weight.name]) for weight in weights}
    theirs = with_rules(read_layout(layout), engine_rules(walk_rknn(expected), weights, matrices))
    found, wanted = constants(old, patched(old, theirs, arrays)), constants(expected)
    own = {name for name in wanted if name.split()[0] in arrays}
    assert len(own) == len(arrays)
    assert {name: found[name] for name in own} == {name: wanted[name] for name in own}


def test_another_engine_of_the_model_is_refused(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layout, wrong = files / "x.layout.toml", files / "wrong.rknn"
    engineset(monkeypatch, "rknn", "decode", files / "old.rknn", "--checkpoint", files / "old.onnx", "-o", layout)
    data = bytearray((files / "old.rknn").read_bytes())
    data[walk_rknn(files / "old.rknn").body.offset + 40] ^= 1
    wrong.write_bytes(data)
    capsys.readouterr()
    assert (
        engineset(
            monkeypatch, "refit", wrong, "--layout", layout, "--checkpoint", files / "new.onnx", "-o", files / "o"
        )
        == 1
    )
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (files / "o").exists()
    assert (
        engineset(
            monkeypatch, "rknn", "decode", files / "old.rknn", "--checkpoint", files / "new.onnx", "-o", files / "l"
        )
        == 1
    )
    assert not (files / "l").exists()
