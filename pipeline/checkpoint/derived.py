"""Tensors of a file as a `Checkpoint` gives them, where the file orders or writes them otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.checkpoint.protocol import Float32
from pipeline.checkpoint.stored import StoredTensor


@dataclass(frozen=True)
class Derived:
    """What stays as it is: the file, the tensor's name there, shape, type and rows."""

    stored: StoredTensor

    @property
    def file(self) -> Path:
        return self.stored.file

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def type_name(self) -> str:
        return self.stored.type_name

    def row_in_file(self, row: int) -> int:
        return self.stored.row_in_file(row)


@dataclass(frozen=True)
class PlusOne(Derived):
    """A norm whose file holds gain - 1; the sum is rounded to float32, as llama.cpp's converter does."""

    def read(self, start: int, stop: int) -> Float32:
        return self.stored.read(start, stop) + np.float32(1)


@dataclass(frozen=True)
class Interleaved(Derived):
    """q or k rows of a llama GGUF in HF order: row `2 * i + half` of a head becomes row `half * head_dim / 2 + i`."""

    head_dim: int

    def read(self, start: int, stop: int) -> Float32:
        first = start // self.head_dim * self.head_dim
        last = -(-stop // self.head_dim) * self.head_dim
        rows = self.stored.read(first, last)
        pairs = rows.reshape(-1, self.head_dim // 2, 2, *self.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows.shape)[start - first : stop - first])

    def row_in_file(self, row: int) -> int:
        head, inside = divmod(row, self.head_dim)
        half, pair = divmod(inside, self.head_dim // 2)
        return self.stored.row_in_file(head * self.head_dim + 2 * pair + half)
