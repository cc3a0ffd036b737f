"""The whole way on the real model: SmolLM2-135M from its Q4_1 GGUF to text, verified and evaluated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.sets import BIN, engineset, run

pytestmark = pytest.mark.slow
LONGEST = 900  # seconds, on a machine that is busy with other tests


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The default config's set, built by the command that the README names."""
    build = tmp_path_factory.mktemp("smollm2")
    done = run(
        [BIN / "luigi", "--module", "tasks", "BuildEngineSet", "--build-dir", build, "--workers", "2"], timeout=LONGEST
    )
    assert done.returncode == 0, done.stderr
    for stage in (
        "WalkTemplate",
        "BuildMarkers",
        "DecodeLayout",
        "WriteSidecar",
        "PatchLayer 29",
        "PatchPost",
        "PatchEmbedding",
    ):
        assert stage in done.stderr
    yield build / "sets" / "smollm2-135m-bf16"


def test_set_writes_text(built: Path) -> None:
    done = engineset("run", built, "The capital of France is", "-n", "4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" Paris")


def test_chat_answers_and_stops_at_the_end(built: Path) -> None:
    done = engineset("run", built, "--chat", "What is 2+2? Answer with one number.", "-n", "60", "--json")
    answer = json.loads(done.stdout)
    assert answer["reason"] == "eos" and "4" in answer["text"], answer


def test_sampling_follows_its_seed(built: Path) -> None:
    def text(seed: int) -> str:
        options = ("--temperature", "1", "--top-k", "40", "--top-p", "0.95", "--seed", seed)
        return engineset("run", built, "Once upon a time", "-n", "12", *options).stdout

    assert text(1) == text(1)
    assert len({text(seed) for seed in (1, 2, 3)}) > 1


def test_verify_reads_every_weight_back(built: Path) -> None:
    done = engineset("verify", built, "--json")
    result = json.loads(done.stdout)
    assert done.returncode == 0 and result["ok"] and result["faults"] == []
    assert result["elements"] == 134_515_008 + 49_152 * 576  # the embedding is tied: read back in the head as well


def test_evaluation_meets_its_gates(built: Path) -> None:
    done = engineset("evaluate", built, "--json", timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["positions"] >= 1000
    twin, control = result["references"]["f32_twin"], result["references"]["control"]
    assert twin["kld_mean"] <= 0.0015 and twin["top1_tie_aware"] >= 0.99
    assert control["kld_mean"] <= 0.0005
    assert set(result["references"]["gguf"]) >= {"kld_mean", "top1", "top1_tie_aware", "ppl_ratio"}
    assert result["known_answers"]["set"] >= result["known_answers"]["reference"] - 2
