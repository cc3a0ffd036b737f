"""`engineset hardware-report`: on a machine with nothing, and with a compiler, a card and engines."""

from __future__ import annotations

import json
import socket
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from layouts.sidecar import read_layout
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.cli.hardware import hardware_report
from pipeline.errors import ToolchainError
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.pulsar2_source import write_source
from pipeline.toolchain.reference import compile_model
from tests.helpers.fake_pulsar2 import write_fake
from tests.helpers.sets import Tiny, make_tiny, write_config
from tests.helpers.simulator import library_path
from tests.helpers.tiny import tiny_config

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "head_dim": 32, "vocab_size": 300}
NOTHING = ("--lib", "libaxcl_that_is_not_there.so")


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULSAR2_HOME", raising=False)


def report(*arguments: object) -> Result:
    return CliRunner().invoke(hardware_report, [str(word) for word in arguments])


def sections_of(path: Path) -> dict[str, dict[str, Any]]:
    if path.name.endswith(".json"):
        return dict(json.loads(path.read_text())["sections"])
    with tarfile.open(path) as archive:
        file = archive.extractfile("report.json")
        return dict(json.load(file)["sections"]) if file else {}


@pytest.mark.parametrize("name", ["report.json", "report.tar.gz"])
def test_machine_with_nothing(tmp_path: Path, name: str) -> None:
    result = report("-o", tmp_path / name, *NOTHING)
    assert result.exit_code == 0, result.output
    found = sections_of(tmp_path / name)
    assert {key: value["status"] for key, value in found.items()} == {
        "machine": "done",
        "card": "absent",
        "compiler": "absent",
        "markers": "absent",
    }
    assert all(value["reason"] for value in found.values() if value["status"] == "absent")
    assert "compiler  absent  neither PULSAR2_HOME nor a command" in result.output.splitlines()


def with_compiler(folder: Path, **behaviour: Any) -> Tiny:
    tiny = make_tiny(folder, "qwen3", **SIZES)
    home = write_fake(folder / "home", "7.0", **behaviour)
    write_config(tiny.config, "qwen3", toolchain="pulsar2", pulsar2=[str(home / "bin" / "pulsar2")])
    return tiny


def test_markers_through_the_compiler_and_a_card(tmp_path: Path) -> None:
    tiny, output = with_compiler(tmp_path), tmp_path / "report.tar.gz"
    result = report("-o", output, "--config", tiny.config, "--lib", library_path())
    assert result.exit_code == 0, result.output
    found = sections_of(output)
    assert {key: value["status"] for key, value in found.items()} == dict.fromkeys(
        ("machine", "card", "compiler", "markers"), "done"
    ), result.output
    assert found["compiler"]["data"] == {"named_by": "command", "version": "7.0"}
    assert (found["markers"]["data"]["builds"], found["markers"]["data"]["compiled"]) == (3, 3)
    with tarfile.open(output) as archive:
        archive.extractall(tmp_path / "out", filter="data")
        owners = {(entry.uname, entry.uid, entry.mtime) for entry in archive.getmembers()}
    assert owners == {("", 0, 0)}
    layout = read_layout(tmp_path / "out" / "markers" / "layer.layout.toml")
    assert "mlp.up_proj.weight" in layout.names()
    texts = [path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(texts) == 5
    assert not any(str(tmp_path.parent) in text or socket.gethostname() in text for text in texts)


def test_compiler_that_fails_has_its_log_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "logs"))
    tiny, output = with_compiler(tmp_path, mode="half"), tmp_path / "report.tar.gz"
    assert report("-o", output, "--config", tiny.config, *NOTHING).exit_code == 0
    found = sections_of(output)
    assert (found["compiler"]["status"], found["markers"]["status"]) == ("done", "failed")
    assert found["markers"]["reason"].startswith(".../pulsar2.log: Pulsar2 failed: RuntimeError: tiling")
    with tarfile.open(output) as archive:
        log = archive.extractfile("markers/pulsar2.log")
        assert log is not None
        assert b"tiling of layer 1 failed" in log.read()


def test_engines_are_walked_one_by_one(tmp_path: Path) -> None:
    config = tiny_config("qwen3", **SIZES)
    engine = compile_model(
        NoiseCheckpoint(config, 1), tmp_path / "made", CompileOptions(kv_cache_len=32, prefill_len=8)
    )[0]
    broken = tmp_path / "broken.axmodel"
    broken.write_bytes(engine.read_bytes()[:-100])
    output = tmp_path / "report.json"
    words = [word for path in (broken, tmp_path / "none.axmodel", engine) for word in ("--engine", path)]
    assert report("-o", output, *words, *NOTHING).exit_code == 0
    found = sections_of(output)
    assert [found[f"engine {n}"]["status"] for n in range(3)] == ["failed", "failed", "done"]
    assert [found[f"layout {n}"]["status"] for n in range(3)] == ["absent"] * 3
    data = found["engine 2"]["data"]
    assert (data["file"], data["container"], data["bytes"]) == (engine.name, "axmodel", engine.stat().st_size)
    assert len(data["walk"]["groups"]) == 5
    assert str(tmp_path) not in output.read_text()


def test_engine_is_decoded_from_its_weights(tmp_path: Path) -> None:
    config = tiny_config("qwen3", **SIZES)
    write_source(tmp_path / "weights", NoiseCheckpoint(config, 1))
    engine = compile_model(
        NoiseCheckpoint(config, 1), tmp_path / "made", CompileOptions(kv_cache_len=32, prefill_len=8)
    )[0]
    output = tmp_path / "report.tar.gz"
    result = report("-o", output, "--engine", engine, "--checkpoint", tmp_path / "weights", *NOTHING)
    assert result.exit_code == 0
    layout = sections_of(output)["layout 0"]
    assert (layout["status"], layout["data"]["kind"], layout["data"]["missing"]) == ("done", "layer", []), layout[
        "reason"
    ]
    with tarfile.open(output) as archive:
        assert f"layout-0/{engine.name}.layout.toml" in archive.getnames()


def test_output_in_the_way_or_of_no_form(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("kept")
    for name in ("there.json", "report.zip"):
        assert isinstance(report("-o", tmp_path / name, *NOTHING).exception, ToolchainError)
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]
