"""An engine set against llama.cpp and against the control."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from pipeline.engineset.names import MANIFEST_FILE
from pipeline.errors import MismatchError, MissingFileError
from pipeline.evaluate.agreement import agree, common_prefix
from pipeline.evaluate.continuations import SetRunner, ask, continue_set, follow
from pipeline.evaluate.control_process import Task, run_control
from pipeline.evaluate.gates import Gates, gates_of
from pipeline.evaluate.llama import LlamaModel
from pipeline.evaluate.material import Material, default_positions, english_material, require_vocabulary
from pipeline.evaluate.metrics import compare
from pipeline.evaluate.recipe import Recipe
from pipeline.evaluate.report import Evaluation
from pipeline.evaluate.twin import write_twin
from pipeline.native import Runner

Array = npt.NDArray[Any]

WINDOW = 1024


OpenRunner = Callable[[Path], AbstractContextManager[SetRunner]]


def open_native(directory: Path) -> AbstractContextManager[SetRunner]:
    """The set on the simulator."""
    return Runner(directory)


def evaluate_set(
    directory: str | Path,
    recipe: Recipe,
    twin_path: str | Path,
    *,
    positions: int | None = None,
    window: int = WINDOW,
    text: Path | None = None,
    material: Material | None = None,
    gates: Gates | None = None,
    threads: int | None = None,
    open_runner: OpenRunner = open_native,
) -> Evaluation:
    """Compare a set with the GGUF its weights came from.

    Parameters
    ----------
    directory : the engine set; without a manifest its weights are not compared, only what they compute
    recipe : the GGUF, and what became of it
    twin_path : where the F32 twin of the source is, or is to be written
    positions : teacher-forced positions; `default_positions` of the vocabulary when None
    window : tokens scored from one empty cache; at most the set's context
    text : a UTF-8 file instead of the package's text
    material : token ids instead of texts, for models without a vocabulary
    gates : bounds that `Evaluation.failures` applies; those of the recipe's weight types when None

    Raises
    ------
    MissingFileError, ConfigError, CheckpointError, RunnerError, MismatchError, NotFiniteError
        each on one line; nothing but the twin is left behind.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise MissingFileError("no such engine set", file=directory)
    seconds: dict[str, float] = {}
    if material is None:
        require_vocabulary(recipe.gguf)
    with timed(seconds, "twin"):
        twin = write_twin(recipe.gguf, twin_path, recipe.change())
    n_ctx, share = max(window, 256), max(1, (threads or os.cpu_count() or 1) // 2)
    with LlamaModel(twin, n_ctx, share) as reference, tempfile.TemporaryDirectory(prefix="engineset-") as scratch:
        wanted = positions or default_positions(reference.vocab_size)
        given = material or english_material(reference, text, wanted, window)
        columns = len(recipe.kept) or reference.vocab_size
        with timed(seconds, "set"), open_runner(directory) as runner:
            logits = score_set(runner, given, columns, Path(scratch))
            continued = [continue_set(runner, p, given.greedy_tokens, ignore_eos=True) for p in given.prompts]
            answered = [continue_set(runner, ids, case.tokens) for case, ids in given.questions]
        task = control_task(directory, recipe, given, continued)
        # the pool is left first: nothing computes with a model that is closed
        with timed(seconds, "references"), ThreadPoolExecutor(2) as pool:
            apart = pool.submit(run_control, task, Path(scratch) / "control.bf16")
            own = pool.submit(gguf_logits, recipe, n_ctx, share, given)
            of_twin = reference_logits(reference, given, recipe.kept)
            twin_continued = follow(reference, given.prompts, continued)
            answers = ask(reference, given, answered)
            of_gguf, (control, judged) = own.result(), apart.result()
        with timed(seconds, "figures"):
            targets = given.within(recipe.kept)
            comparisons = {"control": compare(control, logits, targets)}
            if of_gguf is not None:
                comparisons["gguf"] = compare(of_gguf, logits, targets)
            comparisons["f32_twin"] = compare(of_twin, logits, targets)
            control_against_twin = compare(of_twin, control, targets)
    known = zip(task.sequences, task.starts, judged.best, strict=True)
    control_continued = [best[: common_prefix(best, tokens[start:]) + 1] for tokens, start, best in known]
    return Evaluation(
        references=comparisons,
        control_against_twin=control_against_twin,
        greedy=agree(twin_continued, continued),
        control_greedy=agree(twin_continued, control_continued),
        answers=answers,
        weights=judged.weights,
        seconds=seconds,
        gates=gates or gates_of(recipe),
    )


def control_task(directory: Path, recipe: Recipe, material: Material, continued: Sequence[Sequence[int]]) -> Task:
    """What the control is asked: the text, what it would say after the prompts as far as the set does, and the weights."""
    sequences = [[*prompt, *own[:-1]] for prompt, own in zip(material.prompts, continued, strict=True)]
    starts = [len(prompt) for prompt in material.prompts]
    whole = (directory / MANIFEST_FILE).is_file()
    return Task(recipe, material.windows, sequences, starts, directory if whole else None)


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Adds the wall-clock time of the block under `name`."""
    start = time.monotonic()
    yield
    seconds[name] = time.monotonic() - start


def score_set(runner: SetRunner, material: Material, vocab: int, scratch: Path) -> Array:
    """The set's logits, bf16 `[positions, vocab]`, mapped from files in `scratch`."""
    parts: list[Array] = []
    for i, window in enumerate(material.windows):
        path = scratch / f"logits-{i}.bf16"
        runner.score(window, logits=path)
        expected = len(window) * vocab * 2
        if path.stat().st_size != expected:
            found = path.stat().st_size
            raise MismatchError("bytes of logits from the runner", where=f"window {i}", expected=expected, found=found)
        parts.append(np.memmap(path, ml_dtypes.bfloat16, "r", shape=(len(window), vocab)))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def reference_logits(model: LlamaModel, material: Material, kept: Sequence[int] = ()) -> Array:
    """llama.cpp's logits, float32 `[positions, vocab]`, or those of the tokens `kept`."""
    columns = list(kept) or slice(None)
    parts = [model.logits(window)[:, columns] for window in material.windows]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def gguf_logits(recipe: Recipe, n_ctx: int, threads: int, material: Material) -> Array | None:
    """llama.cpp's logits of the source as it is; None where that is not the model, but what an adapter was merged into."""
    if recipe.adapter:
        return None
    with LlamaModel(recipe.gguf, n_ctx, threads) as model:
        return reference_logits(model, material, recipe.kept)
