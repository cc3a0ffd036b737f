"""What goes wrong: one line, the right exit status, and the card given back."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.native import runner_path
from tests.helpers.fake_runtime import fake_runtime, read_calls, run_fake, write_fake_set, write_options

FINALIZED = ["axclrtEngineFinalize", "axclrtDestroyContext", "axclrtResetDevice", "axclFinalize"]


@pytest.fixture
def fake_set(tmp_path: Path) -> Path:
    return write_fake_set(tmp_path / "set")


def refuse(directory: Path, scratch: Path, *needles: str, finalized: bool = False, **options: Any) -> None:
    ran = run_fake(directory, scratch, "--tokens", "1,2", **options)
    assert (ran.code, len(ran.err), ran.out) == (1, 1, [])
    for needle in needles:
        assert needle in ran.err[0]
    if finalized:
        assert ran.names()[-4:] == FINALIZED


def test_faults_transient_load_is_tried_again(fake_set: Path, tmp_path: Path) -> None:
    ran = run_fake(fake_set, tmp_path, "--tokens", "1,2", "--max-tokens", "1", load_failures=5)
    assert (ran.code, ran.out) == (0, ["3"])
    assert len(ran.of("axclrtEngineLoadFromFile")) == 4 + 5


def test_faults_load_is_given_up_after_six_attempts(fake_set: Path, tmp_path: Path) -> None:
    refuse(fake_set, tmp_path, "axclrtEngineLoadFromFile: 0x80300701", "m_post", finalized=True, load_failures=6)


def test_faults_lasting_load_failure_is_not_tried_again(fake_set: Path, tmp_path: Path) -> None:
    (fake_set / "m_l1_together.axmodel").write_text("not an engine")
    ran = run_fake(fake_set, tmp_path, "--tokens", "1,2")
    assert (ran.code, len(ran.of("axclrtEngineLoadFromFile"))) == (1, 3)
    assert "m_l1_together.axmodel" in ran.err[0]
    assert len(ran.of("axclrtEngineUnload")) == 2
    assert ran.names()[-4:] == FINALIZED


def test_faults_missing_library(fake_set: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [runner_path(), fake_set, "--lib", tmp_path / "none.so", "--tokens", "1"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "none.so" in done.stderr


def test_faults_missing_symbol(fake_set: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.c").write_text("int axclInit(const char *config) { return config != 0; }\n")
    subprocess.run(["g++", "-shared", "-fPIC", "-xc", tmp_path / "empty.c", "-o", tmp_path / "empty.so"], check=True)
    done = subprocess.run(
        [runner_path(), fake_set, "--lib", tmp_path / "empty.so", "--tokens", "1"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path}/empty.so: required symbol axclFinalize is missing\n"


def test_faults_no_card(fake_set: Path, tmp_path: Path) -> None:
    refuse(fake_set, tmp_path, "axclInit: 0x8030010B (device: open failed)", no_card=1)


def test_faults_device_appears_late(fake_set: Path, tmp_path: Path) -> None:
    ran = run_fake(fake_set, tmp_path, "--tokens", "1", "--max-tokens", "1", absent_lists=2)
    assert (ran.code, len(ran.of("axclrtGetDeviceList"))) == (0, 3)


def test_faults_device_never_appears(fake_set: Path, tmp_path: Path) -> None:
    refuse(fake_set, tmp_path, "no device is connected", absent_lists=99)


def test_faults_device_by_id(fake_set: Path, tmp_path: Path) -> None:
    ran = run_fake(fake_set, tmp_path, "--tokens", "1", "--max-tokens", "1", "--device", "129")
    assert ran.of("axclrtSetDevice")[0]["id"] == 129
    wrong = run_fake(fake_set, tmp_path, "--tokens", "1", "--device", "0")
    assert (wrong.code, wrong.err) == (1, ["device 0 is not connected, found: 3 129"])


def test_faults_engine_that_was_initialised_before_is_used_and_left(fake_set: Path, tmp_path: Path) -> None:
    ran = run_fake(fake_set, tmp_path, "--tokens", "1", "--max-tokens", "1", engine_initialised=1)
    assert ran.code == 0
    assert not ran.of("axclrtEngineFinalize")


@pytest.mark.parametrize(
    ("option", "needle"), [("huge_counts", "number of inputs"), ("huge_sizes", "input: size in group")]
)
def test_faults_error_codes_disguised_as_numbers(fake_set: Path, tmp_path: Path, option: str, needle: str) -> None:
    refuse(fake_set, tmp_path, "m_post.axmodel", needle, finalized=True, **{option: 1})


def test_faults_execute(fake_set: Path, tmp_path: Path) -> None:
    refuse(
        fake_set,
        tmp_path,
        "axclrtEngineExecute: 0x8030070C (engine: execute failed)",
        finalized=True,
        failing_execute=2,
    )


def test_faults_logits_that_are_not_numbers(fake_set: Path, tmp_path: Path) -> None:
    refuse(fake_set, tmp_path, "logit that is not a number", finalized=True, nan_token=3)


@pytest.mark.parametrize(
    ("changes", "needles"),
    [
        ({"config": {"axmodel_num": 4}}, ["m_l3_together.axmodel", "missing"]),
        ({"config": {"axmodel_num": 0}}, ["config.json", "axmodel_num", "found 0"]),
        ({"config": {"template_filename_axmodel": "m_l%s"}}, ["config.json", "template_filename_axmodel", "one %d"]),
        ({"config": {"template_filename_axmodel": "m_%d_%d"}}, ["template_filename_axmodel"]),
        ({"config": {"filename_post_axmodel": "none"}}, ["set/none", "missing"]),
        ({"config": {"tokens_embed_num": 301}}, ["embed.bin", "expected 4816 bytes", "found 4800"]),
        ({"config": {"tokens_embed_size": 2**40}}, ["tokens_embed_size"]),
        ({"config": {"eos_token_id": [300]}}, ["eos_token_id", "below 300", "found 300"]),
        ({"post": {"vocab": 299}}, ["m_post.axmodel", "output", "expected 300", "found 299"]),
        ({"post": {"hidden": 16}}, ["m_post.axmodel", "input", "expected 8", "found 16"]),
        ({"hidden": 16}, ["m_l0_together.axmodel", "input", "expected 8", "found 16"]),
        ({"groups": [[64, 0]]}, ["m_l0_together.axmodel", "no decode group"]),
        ({"rows": 1}, ["m_l0_together.axmodel", "recurrent"]),
        ({"groups": [[1, 250]]}, ["m_l0_together.axmodel", "K_cache", "2000"]),
        ({"extra_output": "surplus"}, ["m_l0_together.axmodel", "no buffer", "surplus"]),
        ({"extra_output": "output"}, ["m_l0_together.axmodel", "output is named twice"]),
    ],
)
def test_faults_wrong_set(tmp_path: Path, changes: dict[str, Any], needles: list[str]) -> None:
    refuse(write_fake_set(tmp_path / "set", **changes), tmp_path, *needles)


def test_faults_layers_that_differ(fake_set: Path, tmp_path: Path) -> None:
    layer = json.loads((fake_set / "m_l2_together.axmodel").read_text())
    (fake_set / "m_l2_together.axmodel").write_text(json.dumps(layer | {"kv": 6}))
    refuse(
        fake_set,
        tmp_path,
        "m_l2_together.axmodel: differs from",
        "m_l0_together.axmodel",
        "kv 4",
        "kv 6",
        finalized=True,
    )


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_faults_config_that_is_not_json(fake_set: Path, tmp_path: Path, text: str) -> None:
    (fake_set / "config.json").write_text(text)
    refuse(fake_set, tmp_path, "config.json: is not a JSON object")


def test_faults_no_set(tmp_path: Path) -> None:
    refuse(tmp_path / "none", tmp_path, "none: is not a directory")


@pytest.mark.parametrize("arguments", [[], ["--tokens", "x"], ["--tokens", "1", "--serve"], ["--tokens", "1", "--odd"]])
def test_faults_usage(fake_set: Path, tmp_path: Path, arguments: list[str]) -> None:
    ran = run_fake(fake_set, tmp_path, *arguments)
    assert (ran.code, ran.calls) == (2, [])


@pytest.mark.parametrize("tokens", ["300", "-1", ",".join(["1"] * 201)])
def test_faults_tokens(fake_set: Path, tmp_path: Path, tokens: str) -> None:
    ran = run_fake(fake_set, tmp_path, f"--tokens={tokens}")
    assert (ran.code, len(ran.err)) == (1, 1)
    assert ran.err[0].startswith("tokens: expected ")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_faults_signal_in_the_middle_of_a_generation(fake_set: Path, tmp_path: Path, name: str, code: int) -> None:
    environment, log = write_options(tmp_path, execute_ms=10)
    command = [runner_path(), fake_set, "--lib", fake_runtime(), "--tokens", "20", "--max-tokens", "180"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"21\n"
        child.send_signal(getattr(signal, name))
        _, error = child.communicate(timeout=20)
    names = [call["call"] for call in read_calls(log)]
    assert (child.returncode, error) == (code, b"")
    assert names[-4:] == FINALIZED
    assert names.count("axclrtEngineDestroyIO") == 14


def test_faults_reader_that_goes_away(fake_set: Path, tmp_path: Path) -> None:
    environment, log = write_options(tmp_path, execute_ms=5)
    command = [runner_path(), fake_set, "--lib", fake_runtime(), "--tokens", "20", "--max-tokens", "100"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        error = child.stderr.read()
    assert (child.returncode, error) == (1, b"standard output: Broken pipe\n")
    assert [call["call"] for call in read_calls(log)][-4:] == FINALIZED


def test_faults_card_that_hangs_after_a_failed_call_is_left(fake_set: Path, tmp_path: Path) -> None:
    ran = run_fake(fake_set, tmp_path, "--tokens", "1", "--teardown-limit", "1", failing_execute=1, hang_seconds=100)
    assert (ran.code, len(ran.err)) == (1, 1)
    assert ran.err[0].startswith("axclrtEngineExecute: 0x8030070C")
    assert ran.names()[-1] == "axclrtEngineDestroyIO"


def test_faults_signal_while_waiting_for_a_request(fake_set: Path, tmp_path: Path) -> None:
    environment, log = write_options(tmp_path)
    command = [runner_path(), fake_set, "--lib", fake_runtime(), "--serve"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"{}\n")
        child.stdin.flush()
        assert b"error" in child.stdout.readline()
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 143
    assert [call["call"] for call in read_calls(log)][-4:] == FINALIZED


@pytest.mark.parametrize("hang_finalize", [0, 100])
def test_faults_crash_still_finalizes(fake_set: Path, tmp_path: Path, hang_finalize: int) -> None:
    environment, log = write_options(tmp_path, execute_ms=20, hang_finalize=hang_finalize)
    command = [runner_path(), fake_set, "--lib", fake_runtime(), "--tokens", "20", "--max-tokens", "100"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"21\n"
        child.send_signal(signal.SIGSEGV)
        assert child.wait(20) == -signal.SIGSEGV
    assert [call["call"] for call in read_calls(log)][-1] == "axclFinalize"
