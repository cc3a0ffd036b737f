"""Faults that leave an engine set whole and working: each is a checkpoint that says something else about one or two layers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layouts.sidecar import read_layout
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.checkpoint.wrapped import WrappedCheckpoint
from pipeline.engineset.manifest import read_manifest
from pipeline.engineset.names import layout_file
from pipeline.refit.plan import all_plans, folded_kinds
from pipeline.refit.refit import refit_engine
from pipeline.toolchain.kinds import KINDS, LAYER

Change = Callable[[Checkpoint], Checkpoint]


class Renamed(WrappedCheckpoint):
    """Tensors read under another's name."""

    def __init__(self, base: Checkpoint, names: dict[str, str]) -> None:
        super().__init__(base, base.config)
        self.names_read = names

    def read(self, name: str, rows: slice | None = None) -> Float32:
        return self.base.read(self.names_read.get(name, name), rows)


class Replaced(WrappedCheckpoint):
    """One tensor is what a function makes of it."""

    def __init__(self, base: Checkpoint, name: str, change: Callable[[Float32], Float32]) -> None:
        super().__init__(base, base.config)
        self.name, self.change = name, change

    def read(self, name: str, rows: slice | None = None) -> Float32:
        if name != self.name:
            return self.base.read(name, rows)
        return np.ascontiguousarray(self.change(self.base.read(name))[rows or slice(None)])


@dataclass(frozen=True)
class Mutant:
    """A fault, and the layers whose engines have it."""

    name: str
    layers: tuple[int, ...]
    change: Change


def swapped(pairs: dict[str, str]) -> Change:
    return lambda base: Renamed(base, pairs | {b: a for a, b in pairs.items()})


def replaced(name: str, change: Callable[[Float32], Float32]) -> Change:
    return lambda base: Replaced(base, name, change)


def mutants(base: Checkpoint, layer: int) -> list[Mutant]:
    """The negative controls of a model, all at `layer`; that of q norms where there are some."""
    here, other = f"model.layers.{layer}.", f"model.layers.{layer + 1}."
    layers = {name: other + name.removeprefix(here) for name in base.names() if name.startswith(here)}
    k_and_v = {f"{here}self_attn.k_proj.weight": f"{here}self_attn.v_proj.weight"}
    found = [
        Mutant("two layers swapped", (layer, layer + 1), swapped(layers)),
        Mutant("k and v swapped", (layer,), swapped(k_and_v)),
        Mutant("rows of up_proj shifted by one", (layer,), replaced(f"{here}mlp.up_proj.weight", shift)),
        Mutant("one norm dropped", (layer,), replaced(f"{here}input_layernorm.weight", np.ones_like)),
    ]
    q_norm = f"{here}self_attn.q_norm.weight"
    return found + ([Mutant("q norm dropped", (layer,), replaced(q_norm, np.ones_like))] if q_norm in layers else [])


def shift(rows: Float32) -> Float32:
    return np.roll(rows, 1, axis=0)


def mutated_set(directory: Path, base: Checkpoint, mutant: Mutant, output: Path) -> Path:
    """A set beside `directory` that is linked to it but for the engines of the mutant's layers."""
    manifest = read_manifest(directory)
    layouts = {kind: read_layout(directory / layout_file(kind)) for kind in KINDS}
    output.mkdir(parents=True)
    for path in directory.iterdir():
        os.link(path, output / path.name)
    for plan in all_plans(manifest.model, folded_kinds(layouts)):
        if plan.kind == LAYER and plan.layer in mutant.layers:
            name = manifest.names.file(LAYER, plan.layer)
            (output / name).unlink()
            refit_engine(directory / name, layouts[LAYER], plan, mutant.change(base), output / name, manifest.scales)
    return output
