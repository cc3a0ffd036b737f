"""The toolkit is driven: equal files from equal models, one line for what it refuses, nothing half-written."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import MissingFileError, ToolchainError
from pipeline.toolchain import rknn
from pipeline.toolchain.rknn import RknnModel, compile_rknn
from tests.helpers import onnx_layers


def _models(directory: Path, name: str) -> list[RknnModel]:
    draw = np.random.default_rng(5)
    layer = onnx_layers.conv(
        draw.normal(size=(17, 40, 3, 3)).astype(np.float32), draw.normal(size=17).astype(np.float32)
    )
    samples = [[draw.normal(size=(1, 40, 6, 6)).astype(np.float32)] for _ in range(2)]
    data = layer.SerializeToString()
    return [RknnModel(data, directory / f"{name}.rknn"), RknnModel(data, directory / f"{name}-int8.rknn", samples)]


def _hashes(models: list[RknnModel]) -> list[str]:
    return [hashlib.sha256(model.output.read_bytes()).hexdigest() for model in models]


def test_equal_models_give_equal_files(tmp_path: Path) -> None:
    first, second = _models(tmp_path, "first"), _models(tmp_path, "second")
    compile_rknn([*first, *second])
    assert _hashes(first) == _hashes(second)
    assert len(set(_hashes(first))) == 2
    assert all(model.output.read_bytes()[:4] == b"RKNN" for model in first)


@pytest.mark.parametrize(
    ("damage", "target", "words"),
    [(True, "rk3588", "Nonsense"), (False, "rk9999", "Invalid target_platform 'rk9999'")],
)
def test_what_the_toolkit_refuses_is_one_line(tmp_path: Path, damage: bool, target: str, words: str) -> None:
    good = onnx_layers.matmul(np.ones((36, 3), np.float32))
    bad = onnx_layers.matmul(np.ones((36, 3), np.float32))
    if damage:
        bad.graph.node[0].op_type = "Nonsense"
    models = [RknnModel(m.SerializeToString(), tmp_path / f"{i}.rknn") for i, m in enumerate((good, bad))]
    with pytest.raises(ToolchainError, match=words) as caught:
        compile_rknn(models, target)
    assert len(str(caught.value).splitlines()) == 1
    (log,) = tmp_path.iterdir()
    assert log.suffix == ".log" and log.stat().st_size


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rknn, "START_SECONDS", 0.2)
    models = _models(tmp_path, "late")
    with pytest.raises(ToolchainError, match="took longer"):
        compile_rknn(models, seconds=0.0)
    assert not list(tmp_path.iterdir())


def test_without_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESET_RKNN_PYTHON", str(tmp_path / "python"))
    with pytest.raises(MissingFileError, match="make rknn"):
        compile_rknn(_models(tmp_path, "none"))
