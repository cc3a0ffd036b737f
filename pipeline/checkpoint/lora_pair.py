"""One low-rank change of one weight: where its factors lie, what they must be, and how it is added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from pipeline.checkpoint.derived import Derived
from pipeline.checkpoint.protocol import Float32
from pipeline.checkpoint.slots import Slot
from pipeline.checkpoint.stored import CHUNK_ELEMENTS, StoredTensor
from pipeline.errors import CheckpointError, NotFiniteError
from pipeline.model import EMBEDDING, HEAD, ModelConfig

_NAMED = 8

# `up` is `[rows, rank]`, `down` is `[rank, columns]`
Half = Literal["up", "down"]


@dataclass(frozen=True)
class Transposed(Derived):
    """A factor that its file has the other way round; small enough to be held."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape[::-1]

    @cached_property
    def _whole(self) -> Float32:
        return np.ascontiguousarray(self.stored.read(0, self.stored.shape[0]).T)

    def read(self, start: int, stop: int) -> Float32:
        return self._whole[start:stop]


@dataclass(frozen=True)
class LowRank:
    """A change `weight * up @ down`; `weight` is alpha / rank, or what the adapter says instead."""

    up: StoredTensor
    down: StoredTensor
    weight: float

    @property
    def rank(self) -> int:
        return self.down.shape[0]

    def add(self, values: Float32, start: int, scale: float) -> Float32:
        """Rows from `start` on with the change added: float32(value + f * sum of up[i, k] * down[k, j]).

        f is float32(scale * weight). Products of two float32 are exact in float64; they are added in float64 in the order of
        k, so that every range of rows and every machine gives the same bits.
        """
        factor = np.float64(np.float32(scale * self.weight))
        up = self.up.read(start, start + len(values)).astype(np.float64)
        down = self.down.read(0, self.rank).astype(np.float64)
        step = max(1, CHUNK_ELEMENTS // values.shape[1])
        result = np.empty_like(values)
        for first in range(0, len(values), step):
            part = slice(first, first + step)
            total = up[part, :1] * down[0]
            product = np.empty_like(total)
            for k in range(1, self.rank):
                total += np.multiply(up[part, k : k + 1], down[k], out=product)
            total *= factor
            total += values[part]
            with np.errstate(over="ignore"):
                result[part] = total
        self._check_finite(result, start)
        return result

    def _check_finite(self, values: Float32, start: int) -> None:
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise NotFiniteError(f"the merged weight overflows in row {row}", file=self.up.file, where=self.up.name)


@dataclass
class Pairs:
    """The tensors of an adapter, sorted by the weights that they change; HF names."""

    file: Path
    config: ModelConfig
    slots: Mapping[str, Slot]
    found: dict[str, dict[Half, StoredTensor]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def put(self, name: str, half: Half, tensor: StoredTensor) -> None:
        """Notes a tensor. Raises CheckpointError when another one is that half already."""
        halves = self.found.setdefault(name, {})
        if half in halves:
            reason = f"changes the same weight as {halves[half].name}"
            raise CheckpointError(reason, file=self.file, where=tensor.name)
        halves[half] = tensor

    def checked(self) -> dict[str, tuple[StoredTensor, StoredTensor]]:
        """HF name -> (up, down), all of the shapes that the model's weights have.

        Raises CheckpointError for tensors that match nothing, a half of a pair, a wrong shape, a tied weight.
        """
        if not self.found:
            reason = "the adapter matches no tensor of the model"
            raise CheckpointError(reason, file=self.file, found=_listed(self.unknown) or "no tensors")
        if self.unknown:
            raise CheckpointError("matches no tensor of the model", file=self.file, where=_listed(self.unknown))
        return {name: self._halves(name, **halves) for name, halves in self.found.items()}

    def _halves(
        self, name: str, up: StoredTensor | None = None, down: StoredTensor | None = None
    ) -> tuple[StoredTensor, StoredTensor]:
        if up is None or down is None:
            half = up or down
            where = None if half is None else half.name
            raise CheckpointError("one half of a pair, the other is missing", file=self.file, where=where)
        if self.config.tie_word_embeddings and name in (EMBEDDING.name, HEAD.name):
            reason = "changes one of embedding and head, which this model has as one tensor"
            raise CheckpointError(reason, file=self.file, where=up.name)
        shape = self.slots[name].shape
        if len(shape) != 2:
            raise CheckpointError("a vector has no low-rank change", file=self.file, where=up.name)
        rank = up.shape[-1]
        for half, expected in ((up, (shape[0], rank)), (down, (rank, shape[1]))):
            if half.shape != expected:
                reason = f"shape does not fit {name}, shown as `[rows, rank]` or `[rank, columns]`"
                raise CheckpointError(
                    reason, file=self.file, where=half.name, expected=list(expected), found=list(half.shape)
                )
        return up, down


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
