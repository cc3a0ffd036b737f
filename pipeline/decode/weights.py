"""What an engine may hold of a source: a whole network's tensors, or those of one engine of a language model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from layouts.anchors.pick import Weight, count_hits
from layouts.anchors.scan import Bytes
from pipeline.checkpoint.protocol import Checkpoint, WeightSource
from pipeline.errors import DecodeRefused
from pipeline.refit.plan import EnginePlan, plan_engine, read_assigned
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, LAYER, MODEL, POST_ENGINE

SAMPLED_ROWS = 48


@dataclass(frozen=True)
class Candidate:
    """An engine of a source: its kind, its layer (0 for others) and its weights."""

    kind: str
    layer: int
    weights: list[Weight]


def model_weights(source: WeightSource) -> Candidate:
    """All tensors of a source."""
    return Candidate(MODEL, 0, [Weight(name, source.read(name)) for name in source.names()])


def engine_weights(checkpoint: Checkpoint, blob: Bytes) -> Candidate:
    """The weights of that engine of a language model whose rows stand in the blob.

    Raises DecodeRefused where no engine's do.
    """
    samples = {(plan.kind, plan.layer): _sample(checkpoint, plan) for plan in _plans(checkpoint)}
    hits = count_hits(blob, [sample for own in samples.values() for sample in own])
    totals = {key: sum(hits[weight.name] for weight in own) for key, own in samples.items()}
    kind, layer = max(totals, key=lambda key: totals[key])
    if not totals[kind, layer]:
        raise DecodeRefused("holds no layer, head or embedding of the checkpoint")
    return Candidate(kind, layer, list(_weights(checkpoint, kind, layer)))


def _plans(checkpoint: Checkpoint) -> Iterator[EnginePlan]:
    config = checkpoint.config
    for layer in range(config.num_hidden_layers):
        yield plan_engine(config, LAYER, layer)
    yield plan_engine(config, POST_ENGINE)
    if not config.tie_word_embeddings:
        yield plan_engine(config, EMBEDDING_ENGINE)


def _sample(checkpoint: Checkpoint, plan: EnginePlan) -> list[Weight]:
    """Some rows of the smallest matrix, plain and with its norm folded in; the name tells the engine."""
    folded = plan_engine(checkpoint.config, plan.kind, plan.layer, folded=True)
    matrices = [item for item in plan.assignments if len(checkpoint.shape(item.sources[0])) == 2]
    smallest = min(matrices, key=lambda item: checkpoint.shape(item.sources[0]))
    found = []
    for number, assignments in enumerate((plan.assignments, folded.assignments)):
        item = next(item for item in assignments if item.tensor == smallest.tensor)
        if number and len(item.sources) == 1:
            continue
        values = read_assigned(checkpoint, item, slice(0, SAMPLED_ROWS))
        found.append(Weight(f"{plan.kind}/{plan.layer}/{number}", values))
    return found


def _weights(checkpoint: Checkpoint, kind: str, layer: int) -> Iterator[Weight]:
    plain = plan_engine(checkpoint.config, kind, layer)
    folded = plan_engine(checkpoint.config, kind, layer, folded=True)
    norms = {item.sources[0]: item.tensor for item in plain.assignments}
    gains = {item.tensor: item.sources[1:] for item in folded.assignments}
    for item in plain.assignments:
        values = read_assigned(checkpoint, item, slice(None))
        own = tuple((norms[gain], checkpoint.read(gain)) for gain in gains.get(item.tensor, ()) if gain in norms)
        vector = len(checkpoint.shape(item.sources[0])) == 1
        yield Weight(item.tensor, np.ascontiguousarray(values[0] if vector else values), own)
