"""The simulator against llama.cpp, and the evaluation."""

from __future__ import annotations

import statistics
from pathlib import Path

from pipeline.evaluate.evaluate import evaluate_set
from pipeline.evaluate.llama import LlamaModel
from pipeline.evaluate.recipe import Recipe
from pipeline.native import GenerateResult, Runner
from tests.bench.measure import Row, median_seconds
from tests.bench.workspace import Workspace

TEXT = "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do. " * 12
PROMPT_TOKENS = 256
GENERATED = 64


def measure(workspace: Workspace) -> list[Row]:
    prompt = _prompt(workspace.job.source)
    runs = _generate(workspace.set, prompt)
    decode = statistics.median((GENERATED - 1) / run.decode_s for run in runs)
    prefill = statistics.median(PROMPT_TOKENS / run.prefill_s for run in runs)
    models = {"llama.cpp, F32 twin": workspace.twin, "llama.cpp, GGUF": workspace.job.source}
    speeds = {name: _llama(path, prompt) for name, path in models.items()}
    return [
        Row("decode on the simulator", decode, "tokens/s", {n: s[0] for n, s in speeds.items()}, better="higher"),
        Row("prefill on the simulator", prefill, "tokens/s", {n: s[1] for n, s in speeds.items()}, better="higher"),
        Row("evaluate a set", _evaluate(workspace), "s", {"the bound of one minute": 60.0}),
    ]


def _prompt(source: Path) -> list[int]:
    with LlamaModel(source) as model:
        return model.tokenize(TEXT)[:PROMPT_TOKENS]


def _generate(directory: Path, prompt: list[int]) -> list[GenerateResult]:
    with Runner(directory) as runner:
        return [runner.generate(prompt, max_tokens=GENERATED, ignore_eos=True).finish() for _ in range(3)]


def _llama(path: Path, prompt: list[int]) -> tuple[float, float]:
    """Tokens a second in decode and in prefill."""
    with LlamaModel(path) as model:
        one = median_seconds(lambda: model.greedy([prompt], 1, ignore_end=True))
        many = median_seconds(lambda: model.greedy([prompt], GENERATED, ignore_end=True))
    return (GENERATED - 1) / (many - one), len(prompt) / one


def _evaluate(workspace: Workspace) -> float:
    """Once: it takes long enough. The twin is there already."""
    source, twin = workspace.job.source, workspace.twin
    return median_seconds(lambda: evaluate_set(workspace.set, Recipe(source), twin), 1)
