"""Which source tensors every engine weight comes from, and everything that stands in the way, before a byte is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layouts.stored import EngineLayout
from pipeline.checkpoint.protocol import Checkpoint, Float32, WeightSource
from pipeline.model import EMBEDDING, ModelConfig, TensorSpec, architecture_of
from pipeline.refit.choose import bias_name
from pipeline.refit.refused import PlanRefusedError
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, LAYER, POST_ENGINE

MISSING, UNUSED, MISMATCHED = "missing", "unused", "mismatched"

Fault = tuple[str, str]
"""One of these kinds, and the line that says it."""


@dataclass(frozen=True)
class Assignment:
    """One engine weight and the source tensors (HF names) that it is made of.

    sources : the weight, then the norm whose gain multiplies its columns, where the engine has it folded
    factor : what the weight is multiplied with, as of a scaled embedding
    """

    tensor: str
    sources: tuple[str, ...]
    factor: float = 1.0


@dataclass(frozen=True)
class EnginePlan:
    """All weights of one engine: its kind, its layer (0 for others), and one assignment per stored tensor."""

    kind: str
    layer: int
    assignments: tuple[Assignment, ...]


def plan_engine(config: ModelConfig, kind: str, layer: int = 0, folded: bool = False) -> EnginePlan:
    """The plan of one engine of a model; `folded` where the engine has norms in its projections and not beside them."""
    architecture, members = architecture_of(config), dict(_members(config, kind, layer))
    gains = {spec.name: architecture.folded_norm(spec.name) if folded else "" for spec in members}
    sources = {spec.name: source for spec, source in members.items()}
    factor = architecture.embedding_scale(config) if kind == EMBEDDING_ENGINE else 1.0
    return EnginePlan(
        kind,
        layer,
        tuple(
            Assignment(name, (source, sources[gains[name]]) if gains[name] else (source,), factor)
            for name, source in sources.items()
            if name not in gains.values()
        ),
    )


def read_assigned(checkpoint: WeightSource, assignment: Assignment, rows: slice) -> Float32:
    """Rows of an engine weight as the source has them, float32 `[rows, cols]`; a vector is one row.

    The product with a factor or a gain is rounded to float32, and infinite where it is beyond.
    """
    name, *gains = assignment.sources
    values = checkpoint.read(name)[None] if len(checkpoint.shape(name)) == 1 else checkpoint.read(name, rows)
    with np.errstate(over="ignore"):
        if assignment.factor != 1.0:
            values = values * np.float32(assignment.factor)
        for gain in gains:
            values = values * checkpoint.read(gain)
    return values


def _members(config: ModelConfig, kind: str, layer: int) -> Iterator[tuple[TensorSpec, str]]:
    if kind == LAYER:
        for spec in architecture_of(config).layer:
            yield spec, spec.hf_name(layer)
    else:
        for spec in architecture_of(config).post() if kind == POST_ENGINE else (EMBEDDING,):
            yield spec, spec.name


def all_plans(config: ModelConfig, folded: Collection[str] = ()) -> Iterator[EnginePlan]:
    """The plans of every engine of a set: layers, post, embedding; `folded` are the kinds that have norms folded."""
    for layer in range(config.num_hidden_layers):
        yield plan_engine(config, LAYER, layer, LAYER in folded)
    yield plan_engine(config, POST_ENGINE, folded=POST_ENGINE in folded)
    yield plan_engine(config, EMBEDDING_ENGINE)


def folded_kinds(layouts: Mapping[str, EngineLayout]) -> frozenset[str]:
    """The kinds of engine whose layouts have norms folded into projections."""
    return frozenset(kind for kind, layout in layouts.items() if any(tensor.folded for tensor in layout.tensors))


def describe_plan(plans: Iterable[EnginePlan]) -> list[dict[str, Any]]:
    """What goes where, as JSON values: one entry per engine."""
    return [asdict(plan) for plan in plans]


def check_plan(config: ModelConfig, layouts: Mapping[str, EngineLayout], checkpoint: Checkpoint) -> None:
    """Compare a source with the templates that it is to go into.

    Parameters
    ----------
    config : what the templates were compiled for
    layouts : kind of engine -> its layout
    checkpoint : the source

    Raises
    ------
    PlanRefusedError : dimensions that differ, tensors that are missing, have another shape, or have no place; all of them.
    """
    check_dimensions(config, checkpoint)
    faults = [line for _, line in tensor_faults(config, layouts, checkpoint)]
    if faults:
        raise PlanRefusedError(faults)


def check_dimensions(config: ModelConfig, checkpoint: Checkpoint) -> None:
    """The part of `check_plan` that needs no layouts: raises PlanRefusedError for dimensions that differ, all of them."""
    faults = dimension_faults(config, checkpoint)
    if faults:
        raise PlanRefusedError(faults)


def dimension_faults(config: ModelConfig, checkpoint: Checkpoint) -> list[str]:
    """One line for each dimension that differs."""
    wanted, given = config.shape_key(), checkpoint.config.shape_key()
    return [
        f"{checkpoint.path}: {field}: the template has {value}, the source has {given[field]}"
        for field, value in wanted.items()
        if value != given[field]
    ]


def tensor_faults(
    config: ModelConfig, layouts: Mapping[str, EngineLayout], checkpoint: Checkpoint
) -> dict[Fault, None]:
    """Kind and line of each tensor of a source that is missing, of another shape or without a place, in order."""
    return dict.fromkeys([*_tensor_faults(config, layouts, checkpoint), *unused_faults(config, checkpoint)])


def _tensor_faults(config: ModelConfig, layouts: Mapping[str, EngineLayout], checkpoint: Checkpoint) -> Iterator[Fault]:
    names = set(checkpoint.names())
    for plan in all_plans(config, folded_kinds(layouts)):
        stored = {tensor.name: tensor for tensor in layouts[plan.kind].tensors}
        biases = {bias_name(tensor): tensor.shape[0] for tensor in stored.values()}
        for assignment in plan.assignments:
            source, *gains = assignment.sources
            target = stored.pop(assignment.tensor, None)
            if target is None and assignment.tensor in biases:
                yield from shape_faults(checkpoint, source, (1, biases[assignment.tensor]), source in names)
                continue
            if target is None:
                yield UNUSED, f"{checkpoint.path}: {source}: the {plan.kind} template has no place for it"
                continue
            if bool(gains) != bool(target.folded):
                line = f"{checkpoint.path}: {source}: some norms of the {plan.kind} template are folded, not this one's"
                yield MISMATCHED, line
            for name, shape in [(source, target.shape), *((gain, (1, target.shape[1])) for gain in gains)]:
                yield from shape_faults(checkpoint, name, shape, name in names)
        for name in stored:
            yield (
                MISSING,
                f"{checkpoint.path}: the {plan.kind} template wants {name}, the architecture does not have it",
            )


def shape_faults(checkpoint: Checkpoint, name: str, wanted: tuple[int, ...], there: bool) -> Iterator[Fault]:
    """Kind and line where a tensor is not there, or not as rows and columns that an engine wants."""
    if not there:
        yield MISSING, f"{checkpoint.path}: {name}: missing, the template needs it as {list(wanted)}"
    elif _grid(checkpoint.shape(name)) != wanted:
        found = list(checkpoint.shape(name))
        yield MISMATCHED, f"{checkpoint.path}: {name}: the template has {list(wanted)}, the source has {found}"


def _grid(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1, shape[0]) if len(shape) == 1 else shape


def unused_faults(config: ModelConfig, checkpoint: Checkpoint) -> Iterator[Fault]:
    """Kind and line of each tensor of a source that the architecture does not have."""
    used = {source for plan in all_plans(config) for item in plan.assignments for source in item.sources}
    for name in checkpoint.names():
        if name not in used:
            yield UNUSED, f"{checkpoint.path}: {name}: no engine of the template has a place for it"
