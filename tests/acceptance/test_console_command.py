"""`engineset run` and `engineset inspect` on a tiny set."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import gguf
import numpy as np
import onnx
import pytest

from pipeline.checkpoint.noise import write_hf_directory
from tests.helpers.running import Tiny, build_running, greedy, tokens
from tests.helpers.sets import BIN, engineset
from tests.helpers.tiny import tiny_config, tiny_weights

PROMPT = tokens(7, seed=3)
IDS = ",".join(map(str, PROMPT))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return build_running(tmp_path_factory.mktemp("console"), "llama", qtype="Q8_0")


def test_run_prints_the_tokens_of_the_runner(tiny: Tiny) -> None:
    expected = greedy(tiny.set, PROMPT, 8)
    result = engineset("run", tiny.set, "--tokens", IDS, "-n", 8, "--ignore-eos")
    assert (result.returncode, result.stdout.split()) == (0, [str(token) for token in expected])
    answer = json.loads(engineset("run", tiny.set, "--tokens", IDS, "-n", 8, "--ignore-eos", "--json").stdout)
    assert (answer["prompt"], answer["tokens"], answer["reason"]) == (PROMPT, expected, "length")


def test_run_samples_by_seed(tiny: Tiny) -> None:
    def sampled(seed: int) -> str:
        arguments = ("--tokens", IDS, "-n", 12, "--temperature", 1.5, "--ignore-eos", "--seed", seed)
        return engineset("run", tiny.set, *arguments).stdout

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--tokens", "5,1000"], "1000"),
        (["--tokens", ",".join(["5"] * 250)], "250"),
        (["some text"], "no tokenizer"),
        (["--tokens", IDS, "--lib", "/none/libaxcl_rt.so"], "/none/libaxcl_rt.so"),
    ],
)
def test_run_refuses_in_one_line(tiny: Tiny, arguments: list[str], reason: str) -> None:
    result = engineset("run", tiny.set, *arguments)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert reason in line


def test_run_on_no_set(tmp_path: Path) -> None:
    result = engineset("run", tmp_path, "--tokens", "5")
    assert result.returncode == 1
    assert result.stderr.splitlines() == [f"error: {tmp_path}/manifest.json: not an engine set: it has no manifest"]


def test_inspect_gguf_agrees_with_gguf_py(tiny: Tiny) -> None:
    described = json.loads(engineset("inspect", tiny.gguf, "--json").stdout)
    reader = gguf.GGUFReader(tiny.gguf)
    found = {item["name"]: (item["type"], item["bytes"]) for item in described["tensors"]}
    assert found == {t.name: (t.tensor_type.name, t.n_bytes) for t in reader.tensors}
    assert described["metadata"]["general.architecture"] == "llama"
    assert described["bytes"] == tiny.gguf.stat().st_size
    assert engineset("inspect", tiny.gguf).returncode == 0


def test_inspect_engine_agrees_with_onnx(tiny: Tiny) -> None:
    path = tiny.set / "llama_p64_l0_together.axmodel"
    described = json.loads(engineset("inspect", path, "--json").stdout)
    model, data = onnx.load(path), path.read_bytes()
    stored = {tensor.name: tensor.raw_data for tensor in model.graph.initializer if tensor.raw_data}
    assert {b["name"]: data[b["offset"] :][: b["bytes"]] for b in described["blobs"]} == stored
    assert len(described["groups"]) == len(model.graph.node)
    assert "npu_params" in engineset("inspect", path).stdout


def test_inspect_set(tiny: Tiny) -> None:
    described = json.loads(engineset("inspect", tiny.set, "--json").stdout)
    assert described["name"] == "tiny"
    assert described["model"]["hidden_size"] == 320
    assert set(described["files"]) | {"manifest.json"} == {path.name for path in tiny.set.iterdir()}
    assert "tiny" in engineset("inspect", tiny.set).stdout


@pytest.mark.parametrize("name", ["none.gguf", "text.gguf", "text.axmodel", "empty.gguf", "empty.axmodel"])
def test_inspect_refuses_in_one_line(tmp_path: Path, name: str) -> None:
    if not name.startswith("none"):
        (tmp_path / name).write_text("" if name.startswith("empty") else "hello, this is text and no engine")
    result = engineset("inspect", tmp_path / name)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {tmp_path / name}: ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--tokens", IDS, "--temperature", "nan"], "nan is not a finite number"),
        (["--tokens", IDS, "--top-p", "inf"], "--top-p"),
        (["--tokens", "1,,2"], "--tokens"),
        (["--tokens", IDS, "--system", "x"], "--chat"),
        (["--tokens", IDS, "--seed", str(2**64)], "--seed"),
        ([], "PROMPT"),
        (["text", "--tokens", IDS], "PROMPT"),
    ],
)
def test_wrong_usage_is_one_line_too(tiny: Tiny, arguments: list[str], reason: str) -> None:
    result = engineset("run", tiny.set, *arguments)
    (line,) = result.stderr.splitlines()
    assert result.returncode == 2
    assert line.startswith("error: ") and reason in line


def test_full_disk_behind_stdout_is_one_line(tiny: Tiny) -> None:
    with Path("/dev/full").open("w") as full:
        result = engineset("inspect", tiny.set, stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert result.returncode == 1
    assert result.stderr.splitlines() == ["error: No space left on device"]


def test_llm_build_leaves_nothing_of_a_source_with_a_nan(tmp_path: Path) -> None:
    config = tiny_config("llama")
    weights = tiny_weights(config, 1)
    weights["model.layers.1.mlp.up_proj.weight"][3, 4] = np.nan
    write_hf_directory(tmp_path / "hf", config, weights.items(), "F32")
    output = tmp_path / "engines"
    result = engineset("llm-build", "--input_path", tmp_path / "hf", "--output_path", output)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "model.layers.1.mlp.up_proj.weight" in line
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_luigi_from_another_directory(tiny: Tiny) -> None:
    command = [BIN / "luigi", "--module", "tasks", "BuildEngineSet", "--config", tiny.config, "--build-dir", tiny.build]
    texts = [str(part) for part in command]
    result = subprocess.run(texts, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert "Did not run any tasks" in result.stderr
