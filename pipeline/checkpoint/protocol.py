"""The protocols of sources: weights under names, and with the dimensions of a language model."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipeline.model import ModelConfig

Float32 = npt.NDArray[np.float32]


class WeightSource(Protocol):
    """Named tensors of any network, read lazily."""

    path: Path

    def names(self) -> list[str]:
        """Every tensor of the source, in its own order."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """At least one dimension. Raises CheckpointError for an unknown name."""
        ...

    def type_name(self, name: str) -> str:
        """What the source stores: `Q4_1`, `F32`, `BF16`, `I8` …"""
        ...

    def read(self, name: str, rows: slice | None = None) -> Float32:
        """The tensor, or entries `start:stop` of its first axis, as C-contiguous float32 of its own shape.

        Raises NotFiniteError naming tensor and element for a NaN or an infinity, CheckpointError for a truncated source.
        """
        ...


@runtime_checkable
class Checkpoint(WeightSource, Protocol):
    """The weights of a language model under HF tensor names (others keep their own), rows in HF order, and its dimensions.

    With tied embeddings `lm_head.weight` is listed as a name and reads the embedding's data.
    """

    config: ModelConfig


@runtime_checkable
class Located(Protocol):
    """A source whose tensors lie in files, under names and in a row order of their own."""

    def locate(self, name: str, row: int) -> tuple[Path, str, int]:
        """The file of a tensor, its name there, and where that file has the tensor's row `row`."""
        ...


def locate(checkpoint: WeightSource, name: str, row: int) -> tuple[Path, str, int]:
    """Where a row of a tensor comes from, for error lines: file, tensor, row."""
    return checkpoint.locate(name, row) if isinstance(checkpoint, Located) else (checkpoint.path, name, row)
