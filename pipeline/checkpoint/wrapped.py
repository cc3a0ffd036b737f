"""A checkpoint made of another one: all that is not changed is the other's."""

from __future__ import annotations

from pathlib import Path

from pipeline.checkpoint.protocol import Checkpoint, Float32, locate
from pipeline.model import ModelConfig


class WrappedCheckpoint:
    """Implements `Checkpoint` by `base`, under a configuration of its own; subclasses change tensors."""

    def __init__(self, base: Checkpoint, config: ModelConfig) -> None:
        self.base, self.path, self.config = base, base.path, config

    def names(self) -> list[str]:
        return self.base.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self.base.shape(name)

    def type_name(self, name: str) -> str:
        return self.base.type_name(name)

    def read(self, name: str, rows: slice | None = None) -> Float32:
        return self.base.read(name, rows)

    def locate(self, name: str, row: int) -> tuple[Path, str, int]:
        """As `Located`: where the base has the row."""
        return locate(self.base, name, row)


def innermost(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint of files under all wrappers."""
    while isinstance(checkpoint, WrappedCheckpoint):
        checkpoint = checkpoint.base
    return checkpoint
