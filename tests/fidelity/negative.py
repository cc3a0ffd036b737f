"""What the gate on set against control says of sets with a fault."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pipeline.checkpoint.open import open_checkpoint
from pipeline.engineset.manifest import read_manifest
from pipeline.evaluate.continuations import SetRunner
from pipeline.evaluate.control_process import Task, run_control
from pipeline.evaluate.evaluate import open_native, score_set
from pipeline.evaluate.llama import LlamaModel
from pipeline.evaluate.material import english_material
from pipeline.evaluate.metrics import compare
from pipeline.evaluate.recipe import Places, set_recipe
from tests.fidelity.mutants import mutants, mutated_set

SOUND = "none"
Open = Callable[[Path], AbstractContextManager[SetRunner]]


def fault_distances(
    directory: Path,
    scratch: Path,
    positions: int,
    layer: int,
    only: Sequence[str] = (),
    open_runner: Open = open_native,
) -> dict[str, float]:
    """Name of a fault -> KLD of the set that has it from the control of the true source; `none` is the set itself.

    Parameters
    ----------
    directory : a set whose source is a GGUF in one file
    scratch : faulty sets are made here, on the file system of `directory`, and removed
    only : names of mutants, all by default
    """
    recipe = set_recipe(directory, read_manifest(directory), Places())
    with LlamaModel(recipe.gguf, 256) as model:
        material, vocab = english_material(model, None, positions, positions), model.vocab_size
    scratch.mkdir(parents=True, exist_ok=True)
    control, _ = run_control(Task(recipe, material.windows), scratch / "control.bf16")

    def distance(of: Path) -> float:
        with open_runner(of) as runner:
            return compare(control, score_set(runner, material, vocab, scratch), material.targets).kld_mean

    base, found = open_checkpoint(recipe.gguf), {SOUND: distance(directory)}
    for mutant in mutants(base, layer):
        if not only or mutant.name in only:
            faulty = mutated_set(directory, base, mutant, scratch / "faulty")
            found[mutant.name] = distance(faulty)
            shutil.rmtree(faulty)
    return found
