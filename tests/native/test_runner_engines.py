"""The runner on the simulator, with engines that the reference compiler made of tiny random models."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pipeline.checkpoint.noise import write_hf_directory
from pipeline.checkpoint.open import open_checkpoint
from pipeline.engineset.names import engine_names
from pipeline.engineset.vendor_config import vendor_files
from pipeline.errors import RunnerError
from pipeline.native import Runner
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import ReferenceCompiler
from tests.helpers.tiny import tiny_config, tiny_weights

CONTEXT = 300
TOKENS = [int(token) for token in np.random.default_rng(5).integers(3, 1000, 260)]


@pytest.fixture(scope="module")
def engine_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    config = tiny_config("qwen3", eos_token_ids=())
    write_hf_directory(directory / "hf", config, tiny_weights(config, 1).items(), "BF16")
    # a ladder with a gap at 64
    options = CompileOptions(kv_cache_len=CONTEXT, prefill_len=64, last_kv_cache_len=(128, 192))
    (directory / "set").mkdir()
    ReferenceCompiler(open_checkpoint(directory / "hf"), directory / "set", options).compile()
    for name, content in vendor_files("tiny", config, engine_names(config, options.prefill_len), None).items():
        (directory / "set" / name).write_bytes(content)
    return directory / "set"


@pytest.fixture(scope="module")
def runner(engine_set: Path) -> Iterator[Runner]:
    with Runner(engine_set) as runner:
        yield runner


def test_engines_prefill_and_token_by_token_agree_to_the_bit(runner: Runner, tmp_path: Path) -> None:
    chunked = runner.score(TOKENS, logits=tmp_path / "chunked")
    single = runner.score(TOKENS, logits=tmp_path / "single", prefill=False)
    assert chunked.nll.tobytes() == single.nll.tobytes()
    assert (tmp_path / "chunked").read_bytes() == (tmp_path / "single").read_bytes()
    assert len(np.unique(chunked.nll)) > 200


def test_engines_nll_is_that_of_the_logits(runner: Runner, tmp_path: Path) -> None:
    tokens = TOKENS[:80]
    score = runner.score(tokens, logits=tmp_path / "logits")
    bits = np.fromfile(tmp_path / "logits", "<u2").reshape(80, 1000)
    logits = bits.view(ml_dtypes.bfloat16).astype(np.float64)[:-1]
    shifted = logits - logits.max(axis=1, keepdims=True)
    expected = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(79), tokens[1:]]
    assert score.nll == pytest.approx(expected, rel=1e-12)


def test_engines_generation_is_the_argmax_of_the_logits(runner: Runner, tmp_path: Path) -> None:
    generated = list(runner.generate(TOKENS[:70], max_tokens=12))
    runner.score([*TOKENS[:70], *generated], logits=tmp_path / "logits")
    bits = np.fromfile(tmp_path / "logits", "<u2").reshape(82, 1000)
    logits = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    assert generated == np.argmax(logits[69:81], axis=1).tolist()
    assert generated == list(runner.generate(TOKENS[:70], max_tokens=12, prefill=False))


def test_engines_sampling_is_decided_by_the_seed(runner: Runner) -> None:
    def draw(seed: int) -> list[int]:
        return list(runner.generate(TOKENS[:5], max_tokens=16, temperature=0.8, top_k=50, top_p=0.9, seed=seed))

    assert draw(1) == draw(1) != draw(2)


def test_engines_eos_ends_the_text(runner: Runner) -> None:
    text = list(runner.generate(TOKENS[:5], max_tokens=8))
    generation = runner.generate(TOKENS[:5], max_tokens=8, eos=[text[3]])
    assert list(generation) == text[: text.index(text[3]) + 1]
    assert generation.result is not None and generation.result.reason == "eos"


def test_engines_context_full(runner: Runner) -> None:
    generation = runner.generate([*TOKENS, *TOKENS[:38]], max_tokens=50)
    assert len(list(generation)) == 3
    assert generation.result is not None and generation.result.reason == "context"
    with pytest.raises(RunnerError, match=f"at most {CONTEXT}"):
        list(runner.generate(TOKENS * 2))


def test_engines_runner_keeps_the_binding_contract(runner: Runner) -> None:
    list(runner.generate(TOKENS[:70], max_tokens=3))
    report = runner.report()
    assert report["calls"]["axclrtEngineExecute"] > 0
    assert not any(report["breaches"].values()), report["breaches"]


def test_engines_transient_load_failures_do_not_show(engine_set: Path) -> None:
    with Runner(engine_set, environment={"ENGINESET_SIM_FAULTS": "load=3"}) as faulty:
        assert len(list(faulty.generate([5], max_tokens=2))) == 2


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"ENGINESET_SIM_CARDS": "0"}, "axclInit: 0x8030010B"),
        ({"ENGINESET_SIM_FAULTS": "wedged"}, "axclrtEngineExecute: 0x8030070C"),
    ],
)
def test_engines_card_that_is_not_there_or_wedged(engine_set: Path, environment: dict[str, str], line: str) -> None:
    with Runner(engine_set, environment=environment) as faulty, pytest.raises(RunnerError, match=line):
        list(faulty.generate([5], max_tokens=2))


@pytest.mark.parametrize("name", ["qwen3_p64_l1_together.axmodel", "qwen3_post.axmodel"])
def test_engines_cut_off_engine(engine_set: Path, tmp_path: Path, name: str) -> None:
    broken = tmp_path / "set"
    shutil.copytree(engine_set, broken)
    data = (broken / name).read_bytes()
    (broken / name).write_bytes(data[: len(data) // 2])
    with Runner(broken) as faulty, pytest.raises(RunnerError, match=name):
        list(faulty.generate([5], max_tokens=2))
