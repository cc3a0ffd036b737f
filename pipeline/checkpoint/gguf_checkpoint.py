"""A GGUF, whole or split, as a checkpoint: HF names, HF row order, float32."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.checkpoint.derived import Interleaved
from pipeline.checkpoint.gguf_config import config_from_gguf
from pipeline.checkpoint.gguf_file import GgufFile, TensorInfo
from pipeline.checkpoint.gguf_split import open_shards
from pipeline.checkpoint.protocol import Float32
from pipeline.checkpoint.slots import model_slots
from pipeline.checkpoint.stored import (
    CHUNK_ELEMENTS,
    StoredCheckpoint,
    StoredTensor,
    check_complete,
    check_finite,
)
from pipeline.errors import CheckpointError
from pipeline.model import ModelConfig

# tensors that change what others mean, so that leaving them out would give another model
_REFUSED = (
    (re.compile(r"rope_(freqs|factors_long|factors_short)\.weight"), "RoPE frequency factors are not supported"),
    (re.compile(r".*\.lora_[ab]"), "an adapter, not a base model"),
    (re.compile(r".*\.(input_)?scale"), "weights with a separate scale are not supported"),
)


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of a GGUF file, dequantized as it is read."""

    source: GgufFile
    info: TensorInfo

    @property
    def file(self) -> Path:
        return self.source.path

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape

    @property
    def type_name(self) -> str:
        return self.info.type_name

    def read(self, start: int, stop: int) -> Float32:
        if len(self.shape) == 1:
            return self._units(0, 1).reshape(-1)[start:stop].copy()
        return self._units(start, stop).reshape(stop - start, *self.shape[1:])

    def row_in_file(self, row: int) -> int:
        return row

    def _units(self, start: int, stop: int) -> Float32:
        """Rows as `[rows, elements per row]`, a vector being one row; raw bytes by the chunk."""
        kind, width = self.info.type, math.prod(self.shape) // self.info.n_rows
        values = np.empty((stop - start, width), np.float32)
        step = max(1, CHUNK_ELEMENTS // width)
        for first in range(start, stop, step):
            raw = self.source.read_raw(self.name, slice(first, min(first + step, stop))).reshape(-1)
            chunk = kind.dequantize(kind.to_little_endian(raw) if self.source.big_endian else raw)
            check_finite(chunk, first * width, self, self.info.offset, kind.block, kind.nbytes)
            values[first - start : first - start + step] = chunk.reshape(-1, width)
        return values


class GgufCheckpoint(StoredCheckpoint):
    """A GGUF, or all shards of a split one, of an architecture of the table; implements `Checkpoint`.

    Attributes
    ----------
    files : the shards in order, or the one file; `files[0].metadata` describes the model and its tokenizer

    Raises
    ------
    CheckpointError, MissingFileError : on opening, whatever is wrong with header, configuration or set of tensors
    """

    def __init__(self, path: str | Path) -> None:
        self.files = open_shards(Path(path))
        stored = {name: GgufTensor(file, info) for file in self.files for name, info in file.tensors.items()}
        _refuse_by_name(stored)
        first = self.files[0]
        shapes = {name: tensor.shape for name, tensor in stored.items()}
        config = config_from_gguf(first.metadata, shapes, first.path)
        if config.num_hidden_layers > len(stored):
            raise CheckpointError(
                "more layers than tensors",
                file=first.path,
                where=f"{config.architecture}.block_count",
                expected=f"<= {len(stored)}",
                found=config.num_hidden_layers,
            )
        tensors = _hf_named(stored, config)
        check_complete(first.path, config, tensors, lambda slot: slot.gguf)
        super().__init__(Path(path), config, tensors)


def _refuse_by_name(stored: dict[str, GgufTensor]) -> None:
    for name, tensor in stored.items():
        for pattern, reason in _REFUSED:
            if pattern.fullmatch(name):
                raise CheckpointError(reason, file=tensor.file, where=name, offset=tensor.info.offset)


def _hf_named(stored: dict[str, GgufTensor], config: ModelConfig) -> dict[str, StoredTensor]:
    """HF name -> tensor. A tensor that the file itself calls by an HF name would stand in for another, and is refused."""
    slots = {slot.gguf: slot for slot in model_slots(config)}
    gguf_names = {slot.name: slot.gguf for slot in slots.values()}
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in stored.items():
        slot = slots.get(name)
        if name in gguf_names:
            reason, offset = "a Hugging Face name in a GGUF", tensor.info.offset
            raise CheckpointError(reason, file=tensor.file, where=name, offset=offset, expected=gguf_names[name])
        if slot is None:
            tensors[name] = tensor
        else:
            tensors[slot.name] = Interleaved(tensor, config.head_dim) if slot.spec.permuted else tensor
    return tensors
