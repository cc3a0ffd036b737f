"""Marker checkpoints: what has to be compiled so that layouts can be decoded from the engines alone.

Three builds of a one-layer model at full width and vocabulary: builds 0 and 1 number every element (layouts/markers.py),
the third holds seeded full float32 values and confirms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from layouts.markers import Alphabet, MarkedTensor, choose_alphabet, number_tensors
from pipeline.checkpoint.noise import Dtype, NoiseCheckpoint
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.errors import CheckpointError
from pipeline.model import EMBEDDING, HEAD, ModelConfig, architecture_of
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, LAYER, POST_ENGINE

CONFIRM = 2
BUILDS = 3
CONFIRM_SEED = 7_700


@dataclass(frozen=True)
class MarkerPlan:
    """Which element carries which number, per kind of engine. With tied embeddings head and embedding share theirs."""

    config: ModelConfig
    engines: dict[str, tuple[MarkedTensor, ...]]
    alphabet: Alphabet
    builds: int = CONFIRM
    dtype: Dtype = "F32"

    @property
    def confirm(self) -> int:
        """Index of the confirming build."""
        return self.builds


def plan_markers(config: ModelConfig, weight_type: str = "bf16", post_type: str = "bf16") -> MarkerPlan:
    """Number the elements of a layer, of the post engine and of the embedding.

    Raises DecodeRefused for an engine with more elements than two builds can number.
    """
    single = config.single()
    layer = number_tensors((spec.name, spec.shape(single)) for spec in architecture_of(single).layer)
    post = number_tensors((spec.name, spec.shape(single)) for spec in architecture_of(single).post())
    head = next(tensor for tensor in post if tensor.name == HEAD.name)
    first = head.first if config.tie_word_embeddings else 0
    embedding = (MarkedTensor(EMBEDDING.name, EMBEDDING.shape(single), first),)
    engines = {LAYER: layer, POST_ENGINE: post, EMBEDDING_ENGINE: embedding}
    most = max(tensor.first + tensor.elements for tensors in engines.values() for tensor in tensors)
    return MarkerPlan(single, engines, choose_alphabet(most))


class MarkerCheckpoint:
    """Build 0 or 1 of a plan as a checkpoint; every value is exact in bf16."""

    def __init__(self, plan: MarkerPlan, build: int) -> None:
        self.path = Path(f"markers-{build}")
        self.config = plan.config
        self._alphabet, self._build = plan.alphabet, build
        self._tensors = dict(self._named(plan))

    @staticmethod
    def _named(plan: MarkerPlan) -> Iterator[tuple[str, MarkedTensor]]:
        layer_names = {spec.name: spec.hf_name(0) for spec in architecture_of(plan.config).layer}
        for tensors in plan.engines.values():
            for tensor in tensors:
                yield layer_names.get(tensor.name, tensor.name), tensor

    def names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensor(name).shape

    def type_name(self, name: str) -> str:
        self._tensor(name)
        return "BF16"

    def read(self, name: str, rows: slice | None = None) -> Float32:
        tensor = self._tensor(name)
        start, stop, _ = (slice(None) if rows is None else rows).indices(tensor.shape[0])
        bits = tensor.values(self._alphabet, self._build, start, stop)
        values: Float32 = bits.view(ml_dtypes.bfloat16).astype(np.float32)
        return values

    def _tensor(self, name: str) -> MarkedTensor:
        if name not in self._tensors:
            raise CheckpointError("no such tensor", file=self.path, where=name)
        return self._tensors[name]


def marker_checkpoint(plan: MarkerPlan, build: int) -> Checkpoint:
    """Build 0, 1 or 2 (the confirming one)."""
    return NoiseCheckpoint(plan.config, CONFIRM_SEED) if build == CONFIRM else MarkerCheckpoint(plan, build)
