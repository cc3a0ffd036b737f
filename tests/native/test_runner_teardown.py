"""Giving the card back: after an interrupted score, after signals while the card hangs, after an overflown stack."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import RunnerError
from pipeline.native import Runner, runner_path
from tests.helpers.fake_runtime import fake_runtime, read_calls, run_fake, write_fake_set, write_options


@pytest.fixture
def fake_set(tmp_path: Path) -> Path:
    return write_fake_set(tmp_path / "set")


def interrupt(fake_set: Path, scratch: Path, name: str, **options: Any) -> tuple[int, bytes, list[str]]:
    """A generation that gets a signal after its first token, with a teardown limit of one second."""
    environment, log = write_options(scratch, execute_ms=10, **options)
    command = [runner_path(), "--lib", fake_runtime(), "--teardown-limit", "1", "--tokens", "20", "--max-tokens", "180"]
    with subprocess.Popen([*command, fake_set], env=environment, stdout=-1, stderr=-1) as child:
        assert child.stdout is not None and child.stdout.readline() == b"21\n"
        child.send_signal(getattr(signal, name))
        try:
            _, error = child.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
    return child.returncode, error, [call["call"] for call in read_calls(log)]


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
@pytest.mark.parametrize(
    ("hang", "last"), [("hang_finalize", "axclFinalize"), ("hang_seconds", "axclrtEngineDestroyIO")]
)
def test_teardown_that_hangs_after_a_signal(
    fake_set: Path, tmp_path: Path, name: str, code: int, hang: str, last: str
) -> None:
    found, error, calls = interrupt(fake_set, tmp_path, name, **{hang: 100})
    assert (found, error, calls[-1]) == (code, b"", last)


def test_teardown_signal_while_a_call_hangs(fake_set: Path, tmp_path: Path) -> None:
    environment, log = write_options(tmp_path, hang_execute=5)
    command = [runner_path(), "--lib", fake_runtime(), "--teardown-limit", "1", "--tokens", "20", fake_set]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        while not log.exists() or log.read_text().count('"call":"axclrtEngineExecute"') < 5:
            assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        assert child.communicate(timeout=20) == (b"21\n", b"")
    assert (child.returncode, read_calls(log)[-1]["call"]) == (143, "axclrtEngineExecute")


def test_teardown_that_hangs_after_a_fault_says_the_fault(fake_set: Path, tmp_path: Path) -> None:
    ran = run_fake(fake_set, tmp_path, "--teardown-limit", "1", "--tokens", "1", nan_token=2, hang_finalize=100)
    assert (ran.code, ran.names()[-1]) == (1, "axclFinalize")
    assert ran.err == ["the engines returned a logit that is not a number, row 0"]


def test_teardown_that_hangs_after_engines_that_do_not_fit_says_so(tmp_path: Path) -> None:
    wrong = write_fake_set(tmp_path / "set", hidden=16)
    ran = run_fake(wrong, tmp_path, "--teardown-limit", "1", "--tokens", "1", hang_finalize=100)
    assert (ran.code, len(ran.err)) == (1, 1)
    assert "m_l0_together.axmodel: input: expected 8 elements" in ran.err[0]


def test_teardown_that_hangs_at_the_end_is_a_fault(fake_set: Path, tmp_path: Path) -> None:
    arguments = ["--teardown-limit", "1", "--tokens", "20", "--max-tokens", "1"]
    ran = run_fake(fake_set, tmp_path, *arguments, hang_finalize=100)
    assert (ran.code, ran.out, ran.err) == (1, ["21"], [f"{fake_runtime()}: the card is not given back"])


def test_teardown_after_a_stack_that_overflows(fake_set: Path, tmp_path: Path) -> None:
    ran = run_fake(fake_set, tmp_path, "--tokens", "1", overflow_execute=1)
    assert (ran.code, ran.names()[-1]) == (-signal.SIGSEGV, "axclFinalize")


def score_interrupted(runner: Runner) -> None:
    """A score that is interrupted half a second after it began."""
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        runner.score(range(10, 190), prefill=False)


def test_teardown_of_an_interrupted_score_is_prompt(fake_set: Path, tmp_path: Path) -> None:
    environment, log = write_options(tmp_path, execute_ms=20)
    with Runner(fake_set, fake_runtime(), environment) as runner:
        score_interrupted(runner)
    calls = read_calls(log)
    assert calls[-1]["call"] == "axclFinalize"
    assert len([call for call in calls if call["call"] == "axclrtEngineExecute"]) < 300  # of 720


def test_teardown_interrupted_score_leaves_no_answer_to_the_next_request(fake_set: Path, tmp_path: Path) -> None:
    environment, _ = write_options(tmp_path, execute_ms=5)
    with Runner(fake_set, fake_runtime(), environment) as runner:
        score_interrupted(runner)
        for _ in range(2):
            with pytest.raises(RunnerError, match="interrupted in the middle of an answer"):
                list(runner.generate([20], max_tokens=1))


def test_teardown_answer_of_another_kind(fake_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "engine-run"
    script.write_text("#!/bin/sh\nwhile read -r line; do echo '{\"odd\":1}'; done\n")
    script.chmod(0o755)
    monkeypatch.setattr("pipeline.native.runner_path", lambda: script)
    with Runner(fake_set, fake_runtime()) as runner:
        with pytest.raises(RunnerError, match=r"expected nll, positions.*found odd"):
            runner.score([1])
        with pytest.raises(RunnerError, match=r"expected done.*found odd"):
            list(runner.generate([1]))
        with pytest.raises(RunnerError, match=r"expected report.*found odd"):
            runner.report()
