"""The simulator against llama.cpp, and the evaluation."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from pipeline.evaluate.evaluate import evaluate_set
from pipeline.evaluate.llama import LlamaModel
from pipeline.evaluate.recipe import Recipe
from pipeline.native import Runner
from tests.bench.eight_bits import write_eight_bits
from tests.bench.measure import Row, median_seconds
from tests.bench.workspace import Workspace

TEXT = "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do. " * 12
PROMPT_TOKENS = 256
GENERATED = 64


def measure(workspaces: dict[str, Workspace]) -> Iterator[Row]:
    base = workspaces["bf16"]
    prompt = _prompt(base.job.source)
    ours = {name: _simulate(workspace.set, prompt) for name, workspace in workspaces.items()}
    eight = write_eight_bits(base.twin, base.folder / "q8_0.gguf")
    models = {"F32 twin": base.twin, "GGUF": base.job.source, "Q8_0": eight}
    theirs = {f"llama.cpp, {name}": _llama(path, prompt) for name, path in models.items()}
    for name, speeds in ours.items():
        others = theirs if name == base.weight_type else {"the bf16 set": ours[base.weight_type]} | theirs
        for index, what in enumerate(("decode", "prefill")):
            found = {other: both[index] for other, both in others.items()}
            yield Row(f"{what} on the simulator, {name}", speeds[index], "tokens/s", found, better="higher")
    yield Row("evaluate the bf16 set", _evaluate(base), "s", {"the bound of one minute": 60.0})


def _prompt(source: Path) -> list[int]:
    with LlamaModel(source) as model:
        return model.tokenize(TEXT)[:PROMPT_TOKENS]


def _simulate(directory: Path, prompt: list[int]) -> tuple[float, float]:
    with Runner(directory) as runner:
        runs = [runner.generate(prompt, max_tokens=GENERATED, ignore_eos=True).finish() for _ in range(3)]
    decode = statistics.median((GENERATED - 1) / run.decode_s for run in runs)
    return decode, statistics.median(len(prompt) / run.prefill_s for run in runs)


def _llama(path: Path, prompt: list[int]) -> tuple[float, float]:
    with LlamaModel(path) as model:
        one = median_seconds(lambda: model.greedy([prompt], 1, ignore_end=True))
        many = median_seconds(lambda: model.greedy([prompt], GENERATED, ignore_end=True))
    return (GENERATED - 1) / (many - one), len(prompt) / one


def _evaluate(workspace: Workspace) -> float:
    """Once: it takes long enough. The twin is there already."""
    source, twin = workspace.job.source, workspace.twin
    return median_seconds(lambda: evaluate_set(workspace.set, Recipe(source), twin), 1)
