"""Marker checkpoints: what has to be compiled so that layouts can be decoded from the engines alone.

Builds of a model with one layer of each type, at full width and vocabulary and not tied: the marker builds number every
element, the last one holds seeded full float32 values and confirms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layouts.codes import CODES
from layouts.decode import FloatMarkers
from layouts.decode_integers import IntegerMarkers
from layouts.integer_markers import number_matrices
from layouts.markers import PLUS_ONE_SAFE, VECTOR_ALPHABET, choose_alphabet, number_tensors
from layouts.narrow_codes import builds_needed
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.checkpoint.slots import model_slots
from pipeline.checkpoint.stored import row_range
from pipeline.errors import CheckpointError
from pipeline.model import EMBEDDING, ModelConfig, TensorSpec, architecture_of
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, LAYER, POST_ENGINE
from pipeline.toolchain.options import FLOATS

CONFIRM_SEED = 7_700
FLOAT_BUILDS = 2
RUN = 128

EngineMarkers = FloatMarkers | IntegerMarkers


@dataclass(frozen=True)
class MarkerPlan:
    """What the builds hold.

    config : the marker model
    builds : number of marker builds; the confirming one has this index
    engines : kind of engine -> the numbering of its elements
    own : kind of engine -> number of marker builds, from the first on, that number it
    """

    config: ModelConfig
    builds: int
    engines: dict[str, EngineMarkers]
    own: dict[str, int]

    @property
    def confirm(self) -> int:
        return self.builds

    def builds_of(self, kind: str) -> tuple[int, ...]:
        """The builds that a kind of engine is decoded from; the confirming one is the last."""
        return (*range(self.own[kind]), self.confirm)

    def kinds(self, build: int) -> tuple[str, ...]:
        """The kinds of engine that a build has something to say about."""
        return tuple(kind for kind in self.own if build in self.builds_of(kind))


def plan_markers(config: ModelConfig, weight_type: str, post_type: str) -> MarkerPlan:
    """Number the elements of a layer, of the post engine and of the embedding.

    Raises DecodeRefused for an engine with more elements than marker builds can number.
    """
    single = replace(config.single(), tie_word_embeddings=False)
    architecture = architecture_of(single)
    specs = {
        LAYER: (architecture.layer, weight_type),
        POST_ENGINE: (architecture.post(), post_type),
        EMBEDDING_ENGINE: ((EMBEDDING,), FLOATS[0]),
    }
    own = {kind: _builds(single, *of) for kind, of in specs.items()}
    engines = {kind: _markers(single, *of, own[kind]) for kind, of in specs.items()}
    return MarkerPlan(single, max(own.values()), engines, own)


def _builds(config: ModelConfig, specs: tuple[TensorSpec, ...], weight_type: str) -> int:
    if weight_type in FLOATS:
        return FLOAT_BUILDS
    return builds_needed(weight_type, (shape for _, shape in _matrices(config, specs)))


def _matrices(config: ModelConfig, specs: tuple[TensorSpec, ...]) -> Iterator[tuple[str, tuple[int, int]]]:
    for spec in specs:
        shape = spec.shape(config)
        if len(shape) == 2:
            yield spec.name, (shape[0], shape[1])


def _markers(config: ModelConfig, specs: tuple[TensorSpec, ...], weight_type: str, builds: int) -> EngineMarkers:
    shapes = {spec.name: spec.shape(config) for spec in specs}
    if weight_type in FLOATS:
        tensors = number_tensors(shapes.items())
        safe = any(spec.plus_one for spec in specs)
        return FloatMarkers(tensors, choose_alphabet(sum(t.elements for t in tensors), PLUS_ONE_SAFE if safe else None))
    code = CODES[weight_type](builds)
    matrices = number_matrices(_matrices(config, specs), code)
    norms = {matrix.name: architecture_of(config).folded_norm(matrix.name) for matrix in matrices}
    folds = {name: norm for name, norm in norms.items() if norm}
    gains = {name: shape[0] for name, shape in shapes.items() if name in folds.values()}
    vectors = number_tensors((name, s) for name, s in shapes.items() if len(s) == 1 and name not in gains)
    return IntegerMarkers(code, matrices, vectors, VECTOR_ALPHABET, gains, folds)


class MarkerCheckpoint:
    """A marker build of a plan as a checkpoint; every layer holds the same."""

    def __init__(self, plan: MarkerPlan, build: int) -> None:
        self.path = Path(f"markers-{build}")
        self.config = plan.config
        self._plan, self._build = plan, build
        kinds = {spec.name: kind for kind, specs in self._specs().items() for spec in specs}
        self._slots = {slot.name: (slot, kinds[slot.spec.name]) for slot in model_slots(plan.config)}

    def _specs(self) -> dict[str, tuple[TensorSpec, ...]]:
        architecture = architecture_of(self.config)
        return {LAYER: architecture.layer, POST_ENGINE: architecture.post(), EMBEDDING_ENGINE: (EMBEDDING,)}

    def names(self) -> list[str]:
        return list(self._slots)

    def shape(self, name: str) -> tuple[int, ...]:
        self._check(name)
        return self._slots[name][0].shape

    def type_name(self, name: str) -> str:
        self._check(name)
        return "F32"

    def read(self, name: str, rows: slice | None = None) -> Float32:
        self._check(name)
        slot, kind = self._slots[name]
        start, stop = row_range(rows, slot.shape[0])
        vector = len(slot.shape) == 1
        values = self._plan.engines[kind].values(
            slot.spec.name, self._build % self._plan.own[kind], slice(0, 1) if vector else slice(start, stop)
        )
        if name == EMBEDDING.name:
            values = values / np.float32(architecture_of(self.config).embedding_scale(self.config))
        return values[0][start:stop] if vector else values

    def _check(self, name: str) -> None:
        if name not in self._slots:
            raise CheckpointError("no such tensor", file=self.path, where=name)


class ConfirmCheckpoint(NoiseCheckpoint):
    """Noise that shows more: every row's run of 128 columns has a magnitude of its own, and no gain is near 1."""

    def read(self, name: str, rows: slice | None = None) -> Float32:
        values = super().read(name, rows)
        if values.ndim == 2:
            start, stop = row_range(rows, self.shape(name)[0])
            values *= np.repeat(_magnitudes(start, stop, values.shape[1]), RUN, axis=1)[:, : values.shape[1]]
            return values
        if name.endswith(".bias"):
            return values
        values += np.copysign(np.float32(1 / 64), values - np.float32(1))
        return values


def _magnitudes(start: int, stop: int, cols: int) -> Float32:
    """A number from 1/4 to 1 for each row and run `[rows, runs]`; by the golden ratio, so those of a row are apart."""
    runs = -(-cols // RUN)
    number = np.arange(start * runs + 1, stop * runs + 1, dtype=np.uint32)
    turned = number * np.uint32(2_654_435_761)
    part: Float32 = (turned >> np.uint32(16)).astype(np.float32) * np.float32(0.75 / 65_536)
    part += np.float32(0.25)
    return part.reshape(-1, runs)


def marker_checkpoint(plan: MarkerPlan, build: int) -> Checkpoint:
    """A marker build, or the confirming one."""
    return ConfirmCheckpoint(plan.config, CONFIRM_SEED) if build == plan.confirm else MarkerCheckpoint(plan, build)
