from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipeline.errors import MismatchError, MissingFileError
from pipeline.evaluate.continuations import ask, follow
from pipeline.evaluate.control import Control
from pipeline.evaluate.control_quantize import Quantization
from pipeline.evaluate.evaluate import evaluate_set
from pipeline.evaluate.gates import BF16_GATES, S4_GATES, S8_GATES, Gates, gates_of
from pipeline.evaluate.known_answers import KnownAnswer
from pipeline.evaluate.llama import LlamaModel
from pipeline.evaluate.material import Material, cut
from pipeline.evaluate.metrics import Comparison
from pipeline.evaluate.recipe import Recipe
from pipeline.evaluate.report import Answers, Evaluation
from pipeline.evaluate.stored_weights import WeightCheck
from tests.helpers.tiny import tiny_config, write_tiny_gguf

TOKENS = np.random.default_rng(5).integers(3, 1000, 61).tolist()


class Replay:
    """A runner whose set is the control, with noise on its logits if asked for."""

    def __init__(self, control: Control, noise: float = 0.0, rows: int | None = None) -> None:
        self.control, self.noise, self.rows = control, noise, rows

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None: ...

    def score(self, tokens: Sequence[int], *, logits: Path | None = None) -> None:
        z = self.control.logits(tokens)[: self.rows]
        z = z + self.noise * np.random.default_rng(0).standard_normal(z.shape)
        assert logits is not None
        logits.write_bytes(z.astype(ml_dtypes.bfloat16).tobytes())

    def generate(
        self, tokens: Sequence[int], *, max_tokens: int = 32, ignore_eos: bool = False, prefill: bool = True
    ) -> Iterator[int]:
        return iter(self.control.greedy(tokens, max_tokens))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluate") / "tiny.gguf"
    write_tiny_gguf(path, tiny_config("qwen3"), seed=4, qtype="Q8_0")
    return path


@pytest.fixture(scope="module")
def material() -> Material:
    windows, targets = cut(TOKENS, 60, 32)
    return Material(windows, targets, prompts=(tuple(TOKENS[:4]), tuple(TOKENS[9:15])), questions=(), greedy_tokens=6)


def run(source: Path, material: Material, runner: Replay, gates: Gates = BF16_GATES) -> Evaluation:
    folder = source.parent
    return evaluate_set(
        folder,
        Recipe(source),
        folder / "twin.gguf",
        material=material,
        window=32,
        gates=gates,
        threads=1,
        open_runner=lambda _: runner,
    )


def test_a_set_that_is_the_control_has_no_distance_from_it(source: Path, material: Material) -> None:
    result = run(source, material, Replay(Control(source)))
    assert result.references["control"].kld_mean == pytest.approx(0, abs=1e-12)
    assert result.references["control"].top1 == 1
    assert result.references["f32_twin"] == result.control_against_twin
    assert 0 < result.references["f32_twin"].kld_mean < 0.01
    assert result.greedy.prefix > 0.5
    assert result.positions == 60


def test_json_has_the_shape_that_is_promised(source: Path, material: Material) -> None:
    found = json.loads(json.dumps(run(source, material, Replay(Control(source))).as_dict()))
    assert set(found["references"]) == {"gguf", "f32_twin", "control"}
    for figures in found["references"].values():
        assert {"kld_mean", "top1", "top1_tie_aware", "ppl_ratio"} <= set(figures)
    assert found["positions"] == 60
    assert 0 <= found["greedy_agreement"] <= 1
    assert set(found["seconds"]) == {"twin", "set", "references", "figures"}


def test_noise_fails_the_gates(source: Path, material: Material) -> None:
    noisy = run(source, material, Replay(Control(source), noise=0.5))
    assert any(line.startswith("control.kld_mean = ") and "is not <= 0.0005" in line for line in noisy.failures())
    assert not noisy.as_dict()["passed"]
    assert any(line.startswith("FAIL") for line in noisy.lines())


def test_a_runner_that_writes_too_few_logits_is_found(source: Path, material: Material) -> None:
    with pytest.raises(
        MismatchError, match=r"window 0: bytes of logits from the runner \(expected 64000, found 20000\)"
    ):
        run(source, material, Replay(Control(source), rows=10))


def test_a_missing_set_is_named(source: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="absent: no such engine set"):
        evaluate_set(tmp_path / "absent", Recipe(source), tmp_path / "twin.gguf")
    assert list(tmp_path.iterdir()) == []


def test_gates_judge_at_their_bounds(source: Path, material: Material) -> None:
    good = run(source, material, Replay(Control(source)), Gates(twin_kld=1.0))
    twin = Comparison(60, 0.0015, 0.1, 0.9, 0.99, 0.0, 2.0, 2.0)
    control = replace(twin, kld_mean=0.0005)
    at = replace(good, references={**good.references, "f32_twin": twin, "control": control}, gates=BF16_GATES)
    assert at.failures() == []
    beyond = replace(twin, kld_mean=0.001501, top1_tie_aware=0.989)
    assert len(replace(at, references={**at.references, "f32_twin": beyond}).failures()) == 2
    nan = replace(twin, kld_mean=float("nan"))
    assert len(replace(at, references={**at.references, "f32_twin": nan}).failures()) == 1
    assert [gate.name for gate in good.gate_results()] == ["f32_twin.kld_mean"]


def test_gates_are_those_of_the_coarsest_weights(source: Path) -> None:
    def gates(layers: str, head: str = "", **more: Any) -> Gates:
        return gates_of(Recipe(source, Quantization(layers, head), **more))

    assert gates("bf16") == gates("fp32") == BF16_GATES
    assert gates("s8") == gates("s8", "bf16") == S8_GATES
    assert gates("s4", "s8") == gates("s8", "s4") == S4_GATES
    unknown = gates("s8", exact=False)
    assert (unknown.twin_kld, unknown.control_kld, unknown.weights) == (S8_GATES.twin_kld, None, False)


def test_s4_is_judged_beside_its_control(source: Path, material: Material) -> None:
    good = run(source, material, Replay(Control(source)), S4_GATES)
    assert good.failures() == []
    own = good.control_against_twin
    beyond = replace(good, references={**good.references, "f32_twin": replace(own, kld_mean=1.06 * own.kld_mean)})
    (failure,) = beyond.failures()
    assert failure.startswith("f32_twin.kld_mean = ")


def test_weights_have_a_line_of_their_own(source: Path, material: Material) -> None:
    good = run(source, material, Replay(Control(source)))
    assert good.weights is None
    whole = replace(good, weights=WeightCheck(9, 9))
    assert "pass  control.weights: 9 of 9 equal" in whole.lines()
    assert "FAIL" not in whole.lines()[-1]
    damaged = replace(
        good, weights=WeightCheck(8, 9, "a.axmodel: mlp.up_proj.weight: copy decode, row 3, column 4: 1, not 2")
    )
    assert damaged.failures()[-1].startswith(
        "control.weights: 8 of 9 equal; a.axmodel: mlp.up_proj.weight: copy decode, row 3"
    )
    assert not damaged.as_dict()["passed"]


def test_answers_of_set_and_reference_are_counted(source: Path, material: Material) -> None:
    answers = (Answers("a", "x", True, "x", True), Answers("b", "y", False, "x", True))
    result = replace(run(source, material, Replay(Control(source))), answers=answers)
    assert result.as_dict()["known_answers"]["set"] == 1
    assert "known answers: set 1, reference 2, of 2" in result.lines()


def test_a_source_without_a_vocabulary_is_refused_before_anything_is_computed(source: Path, tmp_path: Path) -> None:
    """llama.cpp would end the whole process."""
    with pytest.raises(
        MismatchError, match=r"tiny\.gguf: tokenizer\.ggml\.model: .*no vocabulary.* \(found no_vocab\)"
    ):
        evaluate_set(source.parent, Recipe(source), tmp_path / "twin.gguf")
    assert list(tmp_path.iterdir()) == []


def test_following_ends_where_the_answers_part(source: Path) -> None:
    prompts = [TOKENS[:4], TOKENS[9:15], TOKENS[20:30], TOKENS[30:32]]
    with LlamaModel(source, 64, 1) as model:
        greedy = model.greedy(prompts, 6, ignore_end=True)
        other = [(token + 1) % 1000 for token in greedy[1]]
        owns = [greedy[0], [*greedy[1][:3], *other[3:]], [], other[:1]]
        assert follow(model, prompts, owns) == [greedy[0], greedy[1][:4], [], greedy[3][:1]]


@pytest.mark.parametrize("end", [None, 0, 3])
def test_reference_answers_as_if_it_had_generated_all(
    source: Path, monkeypatch: pytest.MonkeyPatch, end: int | None
) -> None:
    """Whether the set says the same, something else, or stops early; whether or not the reference's text ends."""
    prompts = (tuple(TOKENS[:4]), tuple(TOKENS[9:15]), tuple(TOKENS[20:30]))
    cases = [KnownAnswer(name, "", "", tokens) for name, tokens in (("same", 5), ("other", 4), ("short", 6))]
    generated: list[int] = []
    monkeypatch.setattr(LlamaModel, "detokenize", lambda self, tokens: " ".join(map(str, tokens)))
    with LlamaModel(source, 64, 1) as model:
        free = model.greedy(prompts, 6, ignore_end=True)
        monkeypatch.setattr(LlamaModel, "is_end", lambda self, token: end is not None and token == free[0][end])
        answered = [free[0][:5], [*free[1][:3], free[1][3] ^ 1], free[2][:2]]
        expected = [tokens[: case.tokens] for tokens, case in zip(model.greedy(prompts, 6), cases, strict=True)]
        given = model.greedy

        def greedy(self: LlamaModel, some: Sequence[Sequence[int]], n: int) -> list[list[int]]:
            generated.append(len(some))
            return given(some, n)

        monkeypatch.setattr(LlamaModel, "greedy", greedy)
        material = Material((), (), (), tuple(zip(cases, prompts, strict=True)))
        answers = ask(model, material, answered)
    assert [answer.reference_text for answer in answers] == [" ".join(map(str, tokens)) for tokens in expected]
    assert generated == [2 if end is None else 3]
