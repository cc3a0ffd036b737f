"""JSON lines in and out: one load for many requests, and `pipeline.native.Runner` on top."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import RunnerError
from pipeline.native import Runner
from tests.helpers.fake_runtime import Ran, fake_runtime, read_calls, run_fake, write_fake_set, write_options


@pytest.fixture
def fake_set(tmp_path: Path) -> Path:
    return write_fake_set(tmp_path / "set")


@pytest.fixture
def runner(fake_set: Path, tmp_path: Path) -> Iterator[Runner]:
    environment, _ = write_options(tmp_path)
    with Runner(fake_set, fake_runtime(), environment) as runner:
        yield runner


def serve(fake_set: Path, scratch: Path, *requests: Any, **options: Any) -> tuple[list[dict[str, Any]], Ran]:
    lines = [request if isinstance(request, str) else json.dumps(request) for request in requests]
    ran = run_fake(fake_set, scratch, "--serve", stdin="\n".join(lines), **options)
    return [json.loads(line) for line in ran.out], ran


def generate(*tokens: int, **more: Any) -> dict[str, Any]:
    return {"op": "generate", "tokens": tokens, **more}


def ids(answers: list[dict[str, Any]]) -> list[int]:
    return [answer["token"] for answer in answers if "token" in answer]


@pytest.mark.parametrize(
    ("more", "tokens", "reason"),
    [
        ({}, [6, 7], "eos"),
        ({"ignore_eos": True, "max_tokens": 3}, [6, 7, 8], "length"),
        ({"eos": [], "max_tokens": 6}, [6, 7, 8, 9, 10, 11], "length"),
        ({"eos": [11, 8]}, [6, 7, 8], "eos"),
        ({"max_tokens": 0}, [], "length"),
        ({"max_tokens": 1, "prefill": False}, [6], "length"),
    ],
)
def test_serve_generate(fake_set: Path, tmp_path: Path, more: dict[str, Any], tokens: list[int], reason: str) -> None:
    answers, _ = serve(fake_set, tmp_path, generate(3, 4, 5, **more))
    assert ids(answers) == tokens
    done = answers[-1]["done"]
    assert (done["reason"], done["prompt_tokens"], done["generated"]) == (reason, 3, len(tokens))
    assert done["prefill_s"] > 0 <= done["decode_s"]


def test_serve_second_id_of_the_sets_eos_list(fake_set: Path, tmp_path: Path) -> None:
    assert ids(serve(fake_set, tmp_path, generate(7))[0]) == [8, 9]


@pytest.mark.parametrize("prompt", [150, 199, 200])
def test_serve_context_full(fake_set: Path, tmp_path: Path, prompt: int) -> None:
    tokens = [50 + i % 7 for i in range(prompt)]
    answers, _ = serve(fake_set, tmp_path, generate(*tokens, max_tokens=500), generate(20, max_tokens=2))
    assert len(ids(answers)) == 200 - prompt + 1 + 2
    assert answers[-4]["done"]["reason"] == "context"
    assert ids(answers)[-2:] == [21, 22]


def test_serve_requests_share_one_load_and_no_state(fake_set: Path, tmp_path: Path) -> None:
    answers, ran = serve(fake_set, tmp_path, generate(20, 21, max_tokens=2), generate(30, max_tokens=2))
    assert ids(answers) == [22, 23, 31, 32]
    assert len(ran.of("axclrtEngineLoadFromFile")) == 4
    last = ran.layer_calls()[-1]
    assert last["keys"] == [30] + [0] * 199


@pytest.mark.parametrize(
    ("request_line", "needle"),
    [
        ("{", "not a JSON object"),
        ("[]", "not a JSON object"),
        ("", "not a JSON object"),
        ({"op": "dance"}, "op: expected"),
        ({"tokens": [1]}, "op: expected"),
        (generate(), "tokens: expected one or more"),
        ({"op": "generate"}, "tokens: expected a list"),
        (generate(300), "tokens: expected ids below 300, found 300"),
        ({"op": "generate", "tokens": [1.5]}, "tokens: expected token ids, found 1.5"),
        ({"op": "generate", "tokens": [-1]}, "tokens: expected token ids, found -1"),
        ({"op": "generate", "tokens": [2**31]}, "tokens: expected token ids"),
        (generate(*[1] * 201), "tokens: expected at most 200 (the context of the set), found 201"),
        (generate(1, max_token=2), 'unknown key "max_token"'),
        (generate(1, max_tokens=-1), "max_tokens"),
        (generate(1, temperature=-0.5), "temperature"),
        (generate(1, temperature="hot"), "temperature"),
        (generate(1, top_p=0), "top_p"),
        (generate(1, top_p=1.5), "top_p"),
        (generate(1, top_k=1.5), "top_k"),
        (generate(1, seed=None), "seed"),
        (generate(1, prefill=1), "prefill"),
        (generate(1, eos=3), "eos"),
        ({"op": "score", "tokens": [1, 2], "logits": 3}, "logits: expected a file name"),
        ({"op": "score", "tokens": [1, 2], "logits": "/nonexistent/x"}, "/nonexistent/x: cannot be written"),
        ({"op": "report"}, "axclsimReport"),
        ('{"op": "\\ud800"}', "JSON"),
    ],
)
def test_serve_bad_request_is_answered_and_forgotten(
    fake_set: Path, tmp_path: Path, request_line: Any, needle: str
) -> None:
    answers, ran = serve(fake_set, tmp_path, request_line, generate(20, max_tokens=1))
    assert list(answers[0]) == ["error"]
    assert needle in answers[0]["error"]
    assert "\n" not in answers[0]["error"]
    assert (ids(answers), ran.code, ran.err) == ([21], 0, [])


def test_serve_device_fault_is_answered_and_ends(fake_set: Path, tmp_path: Path) -> None:
    answers, ran = serve(fake_set, tmp_path, generate(1), generate(1), failing_execute=3)
    assert [list(answer) for answer in answers] == [["error"]]
    assert (ran.code, ran.err) == (1, [answers[0]["error"]])
    assert ran.names()[-1] == "axclFinalize"


@pytest.mark.parametrize("prefill", [True, False])
def test_serve_score(runner: Runner, tmp_path: Path, prefill: bool) -> None:
    tokens = [*range(20, 95), 20]
    score = runner.score(tokens, logits=tmp_path / "logits", prefill=prefill)
    logits = np.fromfile(tmp_path / "logits", "<u2").reshape(76, 300)
    assert score.positions == 76
    assert (np.argmax(logits, axis=1) == np.array(tokens) + 1).all()
    likely = np.log(np.exp(4.0) + 299) - 4.0
    assert score.nll == pytest.approx([likely] * 74 + [likely + 4.0], rel=1e-15)
    assert sorted(path.name for path in tmp_path.iterdir() if "logits" in path.name) == ["logits"]


def test_serve_score_without_logits_skips_the_last_position(fake_set: Path, tmp_path: Path) -> None:
    answers, ran = serve(fake_set, tmp_path, {"op": "score", "tokens": [20, 21, 22]}, {"op": "score", "tokens": [20]})
    assert len(ran.of("axclrtEngineExecute", kind="post")) == 2
    assert [answer["positions"] for answer in answers] == [3, 1]
    assert [len(answer["nll"]) for answer in answers] == [2, 0]


def test_serve_score_that_fails_leaves_no_file(fake_set: Path, tmp_path: Path) -> None:
    request = {"op": "score", "tokens": [20, 21, 22], "logits": str(tmp_path / "logits")}
    answers, _ = serve(fake_set, tmp_path, request, nan_token=22)
    assert list(answers[0]) == ["error"]
    assert not [path for path in tmp_path.iterdir() if "logits" in path.name]


def test_serve_post_config_is_the_default(fake_set: Path, tmp_path: Path) -> None:
    sampling = {"enable_temperature": True, "temperature": 1000.0, "enable_top_k_sampling": True, "top_k": 40}
    (fake_set / "post_config.json").write_text(json.dumps(sampling))
    answers, _ = serve(fake_set, tmp_path, generate(20, max_tokens=30), generate(20, max_tokens=3, temperature=0))
    wild, greedy = ids(answers)[:-3], ids(answers)[-3:]
    assert greedy == [21, 22, 23]
    assert wild != list(range(21, 51))


def test_runner_generation_and_result(runner: Runner) -> None:
    generation = runner.generate([3, 4, 5])
    assert generation.result is None
    assert list(generation) == [6, 7]
    assert generation.result is not None
    assert (generation.result.reason, generation.result.generated) == ("eos", 2)


def test_runner_generation_left_half_read_keeps_its_tokens(runner: Runner) -> None:
    first = runner.generate([20], max_tokens=4)
    assert next(first) == 21
    assert list(runner.generate([30], max_tokens=2)) == [31, 32]
    assert list(first) == [22, 23, 24]


def test_runner_error_and_on(runner: Runner) -> None:
    for _ in range(2):
        with pytest.raises(RunnerError, match="ids below 300, found 300"):
            list(runner.generate([300]))
        with pytest.raises(RunnerError, match="no report"):
            runner.report()
    assert list(runner.generate([20], max_tokens=1)) == [21]


def test_runner_dead_child_says_why(fake_set: Path, tmp_path: Path) -> None:
    (fake_set / "config.json").unlink()
    with (
        Runner(fake_set, fake_runtime(), write_options(tmp_path)[0]) as runner,
        pytest.raises(RunnerError, match=r"config\.json: cannot be read"),
    ):
        list(runner.generate([1]))


def test_runner_close_in_the_middle_is_orderly(fake_set: Path, tmp_path: Path) -> None:
    environment, log = write_options(tmp_path, execute_ms=10)
    with Runner(fake_set, fake_runtime(), environment) as runner:
        assert next(runner.generate([20], max_tokens=180)) == 21
    calls = read_calls(log)
    assert calls[-1]["call"] == "axclFinalize"
    assert len([call for call in calls if call["call"] == "axclrtEngineExecute"]) < 100
    with pytest.raises(RunnerError, match="closed"):
        runner.score([1])


def test_runner_leaves_no_child(fake_set: Path, tmp_path: Path) -> None:
    with Runner(fake_set, fake_runtime(), write_options(tmp_path)[0]) as runner:
        list(runner.generate([20], max_tokens=1))
        child = runner._child
    assert isinstance(child, subprocess.Popen)
    assert child.returncode == 0
