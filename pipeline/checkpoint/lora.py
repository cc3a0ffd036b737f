"""A LoRA adapter merged into a base model, row range by row range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipeline.checkpoint.gguf_split import open_shards
from pipeline.checkpoint.lora_gguf import read_gguf_adapter
from pipeline.checkpoint.lora_pair import LowRank
from pipeline.checkpoint.lora_peft import peft_files, read_peft_adapter
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.checkpoint.stored import row_range
from pipeline.checkpoint.wrapped import WrappedCheckpoint
from pipeline.errors import CheckpointError


def merge_adapter(base: Checkpoint, path: Path, scale: float) -> Checkpoint:
    """The base model with an adapter added to its weights; headers are read here, factors when a weight is read.

    Parameters
    ----------
    path : an adapter GGUF or a PEFT directory
    scale : what the adapter's own alpha / rank is multiplied by, finite; 0 leaves the weights as they are

    Raises
    ------
    CheckpointError, MissingFileError : not a LoRA adapter of this model, or one that cannot be merged exactly
    """
    read = read_peft_adapter if path.is_dir() else read_gguf_adapter
    _refuse_safetensors(path)
    changes = read(path, base.config)
    for change in changes.values():
        if not math.isfinite(scale) or not abs(scale * change.weight) <= float(np.finfo(np.float32).max):
            reason, expected = "impossible scale of an adapter", "a finite float32, times alpha / rank too"
            raise CheckpointError(reason, file=path, expected=expected, found=scale)
    return _Merged(base, changes, scale)


def adapter_files(path: Path) -> list[Path]:
    """All files that make up the adapter at `path`, in a fixed order: what to hash to name its content."""
    if path.is_dir():
        return peft_files(path)
    _refuse_safetensors(path)
    return [file.path for file in open_shards(path)]


def _refuse_safetensors(path: Path) -> None:
    if path.suffix == ".safetensors" and path.is_file():
        raise CheckpointError("name its directory, which holds adapter_config.json too", file=path)


class _Merged(WrappedCheckpoint):
    def __init__(self, base: Checkpoint, changes: Mapping[str, LowRank], scale: float) -> None:
        super().__init__(base, base.config)
        self._changes, self._scale = changes, scale

    def type_name(self, name: str) -> str:
        return f"{self.base.type_name(name)} + LoRA" if name in self._changes else self.base.type_name(name)

    def read(self, name: str, rows: slice | None = None) -> Float32:
        values, change = self.base.read(name, rows), self._changes.get(name)
        if change is None:
            return values
        return change.add(values, row_range(rows, self.base.shape(name)[0])[0], self._scale)
