"""The one protocol that every source of weights speaks."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipeline.model import ModelConfig

Float32 = npt.NDArray[np.float32]


class Checkpoint(Protocol):
    """A model's weights under HF tensor names, read lazily.

    With tied embeddings `lm_head.weight` is listed as a name and reads the embedding's data.
    """

    path: Path
    config: ModelConfig

    def names(self) -> list[str]:
        """Every tensor of the source, HF names; one that the architecture does not know keeps its own name."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Rows first. Raises CheckpointError for an unknown name."""
        ...

    def type_name(self, name: str) -> str:
        """The source's own type: `Q4_1`, `F32`, `BF16` …"""
        ...

    def read(self, name: str, rows: slice | None = None) -> Float32:
        """The tensor, or rows `start:stop` of its first axis, as C-contiguous float32 in HF row order.

        Raises NotFiniteError naming tensor and element for a NaN or an infinity, CheckpointError for a truncated source.
        """
        ...


@runtime_checkable
class Located(Protocol):
    """A checkpoint whose tensors lie in files, under names and in a row order of their own."""

    def locate(self, name: str, row: int) -> tuple[Path, str, int]:
        """The file of a tensor (HF name), its name there, and where that file has the tensor's row `row`."""
        ...


def locate(checkpoint: Checkpoint, name: str, row: int) -> tuple[Path, str, int]:
    """Where a row of a tensor comes from, for error lines: file, tensor, row."""
    return checkpoint.locate(name, row) if isinstance(checkpoint, Located) else (checkpoint.path, name, row)
