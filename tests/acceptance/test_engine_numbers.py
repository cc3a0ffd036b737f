"""Engines of tiny models with odd sizes, from GGUF to logits, against the control's exact arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.evaluate.control import Control
from pipeline.evaluate.metrics import log_softmax
from tests.helpers.running import FLAGS, greedy, logits, tokens
from tests.helpers.sets import Tiny, built, make_tiny, write_config
from tests.helpers.tiny import tiny_config, tiny_weights, write_gguf

MODELS = [
    ("qwen2", 64, "F32"),
    ("qwen2", 48, "Q8_0"),
    ("qwen3", 64, "Q4_1"),
    ("qwen3", 48, "F32"),
    ("llama", 64, "Q4_0"),
    ("llama", 48, "F32"),
]
IDS = tokens(150, seed=4)
ALLOWED = 1.25
CLOSE = 0.1


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: "-".join(map(str, model)))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    arch, head_dim, qtype = request.param
    folder = tmp_path_factory.mktemp(f"{arch}-{head_dim}")
    config = tiny_config(arch, head_dim=head_dim)
    weights = {name: values * calm(name) for name, values in tiny_weights(config, seed=1).items()}
    made = make_tiny(folder, arch, qtype=qtype, head_dim=head_dim)
    made.gguf.unlink()
    write_gguf(made.gguf, config, weights, qtype)
    write_config(made.config, arch, layout_seed=head_dim, **FLAGS)
    built(made)
    return made


def calm(name: str) -> np.float32:
    """Attention that does not blow a rounding up: the control itself keeps the exact model's tokens then."""
    return np.float32(0.25 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1)


def divergence(reference: npt.NDArray[np.float64], other: npt.NDArray[np.generic]) -> float:
    log_p, log_q = log_softmax(reference), log_softmax(np.asarray(other))
    return float((np.exp(log_p) * (log_p - log_q)).sum(axis=1).mean())


def test_logits_are_as_near_to_the_exact_model_as_the_control(tiny: Tiny, tmp_path: Path) -> None:
    exact = Control(tiny.gguf, exact=True).logits(IDS)
    control = Control(tiny.gguf).logits(IDS)
    assert exact.std() > 1, "logits that say nothing would agree with anything"
    for prefill in (True, False):
        found = logits(tiny.set, IDS, tmp_path, prefill)
        for measure in (lambda x: np.abs(x - exact).max(), lambda x: np.sqrt(((x - exact) ** 2).mean())):
            assert measure(found) <= ALLOWED * measure(control)
        assert divergence(exact, found) <= ALLOWED * divergence(exact, control)


def test_control_and_engines_are_not_the_same_as_a_wrong_model(tiny: Tiny, tmp_path: Path) -> None:
    """The bound can fail: the same tokens one position later are far outside it."""
    exact = Control(tiny.gguf, exact=True).logits(IDS)
    control = Control(tiny.gguf).logits(IDS)
    found = logits(tiny.set, IDS, tmp_path)
    assert np.abs(found[1:] - exact[:-1]).max() > 10 * ALLOWED * np.abs(control - exact).max()


@pytest.mark.parametrize("prefill", [True, False])
def test_greedy_tokens_are_the_exact_models(tiny: Tiny, prefill: bool) -> None:
    model = Control(tiny.gguf, exact=True)
    for seed in range(3):
        prompt = tokens(5 + 30 * seed, seed)
        chosen = greedy(tiny.set, prompt, 16, prefill)
        assert len(chosen) == 16
        rows = model.logits([*prompt, *chosen])[len(prompt) - 1 : -1]
        for row, token in zip(rows, chosen, strict=True):
            gap = row.max() - row[token]
            assert token == row.argmax() or gap < CLOSE
