"""The control in a process of its own, on one thread: BLAS threads that share cores with anything else mostly wait.

Measured beside other work on two cores: 14 CPU seconds for 1,024 positions of SmolLM2-135M, on two BLAS threads up to 32.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import numpy.typing as npt

from pipeline.environment import child_environment, variable
from pipeline.errors import CheckpointError, EngineSetError, RunnerError
from pipeline.evaluate.control import Control
from pipeline.evaluate.recipe import Recipe
from pipeline.evaluate.stored_weights import WeightCheck, compare_weights

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
REFUSED = 3


@dataclass(frozen=True)
class Task:
    """What the control is asked.

    windows : token ids, each scored from an empty cache
    sequences, starts : token ids, and how many of them are a prompt
    directory : the set whose weights are compared, None for none
    """

    recipe: Recipe
    windows: Sequence[Sequence[int]]
    sequences: Sequence[Sequence[int]] = ()
    starts: Sequence[int] = ()
    directory: Path | None = None


@dataclass(frozen=True)
class Answer:
    """best : for each sequence the most likely token after its prompt, after one token more, and so on to all of it."""

    best: list[list[int]]
    weights: WeightCheck | None


def run_control(task: Task, logits: Path) -> tuple[npt.NDArray[Any], Answer]:
    """The control's logits of all windows, bf16 `[positions, rows of the head]`, mapped from `logits`, and the rest.

    Raises
    ------
    CheckpointError : what the control finds wrong with the source or the set
    RunnerError : the process ended otherwise
    """
    request = msgspec.json.encode({"task": task, "logits": str(logits)}, enc_hook=str)
    command = [sys.executable, "-P", "-m", "pipeline.evaluate.control_process"]
    paths = [str(Path(__file__).parents[2]), *filter(None, [variable("PYTHONPATH")])]
    environment = child_environment({**ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)})
    child = subprocess.run(command, input=request, capture_output=True, env=environment, check=False)
    if child.returncode == REFUSED:
        raise CheckpointError(child.stderr.decode().strip())
    if child.returncode:
        lines = child.stderr.decode("utf-8", "replace").splitlines()
        raise RunnerError(f"the control ended: {lines[-1] if lines else child.returncode}", file=task.recipe.gguf)
    positions = sum(len(window) for window in task.windows)
    scores = np.memmap(logits, ml_dtypes.bfloat16, "r").reshape(positions, -1)
    return scores, msgspec.json.decode(child.stdout, type=Answer)


def answer(task: Task, logits: Path) -> Answer:
    """What the process does."""
    control = task.recipe.control()
    with logits.open("wb") as file:
        for window in task.windows:
            file.write(control.logits(window).astype(ml_dtypes.bfloat16).tobytes())
    pairs = zip(task.sequences, task.starts, strict=True)
    best = [_most_likely(control, tokens, start, task.recipe.kept) for tokens, start in pairs]
    weights = None if task.directory is None else compare_weights(task.directory, control.weight)
    return Answer(best, weights)


def _most_likely(control: Control, tokens: Sequence[int], start: int, kept: Sequence[int]) -> list[int]:
    rows: list[int] = control.logits(tokens)[start - 1 :].argmax(axis=1).tolist()
    return [kept[row] for row in rows] if kept else rows


class _Request(msgspec.Struct):
    task: Task
    logits: str


def main() -> int:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_Request, dec_hook=lambda kind, text: kind(text))
    try:
        sys.stdout.buffer.write(msgspec.json.encode(answer(request.task, Path(request.logits))))
    except EngineSetError as error:
        print(error, file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
