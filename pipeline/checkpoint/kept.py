"""A head trimmed to a part of the vocabulary: row i of `lm_head.weight` is the row of token `ids[i]`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.checkpoint.stored import row_range
from pipeline.checkpoint.wrapped import WrappedCheckpoint
from pipeline.errors import ConfigError, MissingFileError
from pipeline.model import HEAD

_MAX_JSON = 64 << 20
# rows that are read and dropped rather than sought past
_GAP = 16


def read_ids(path: Path, vocab_size: int) -> list[int]:
    """The token ids of a file: a JSON array of distinct ids, in the order in which the head has their rows.

    Raises
    ------
    MissingFileError : the file is not there
    ConfigError : not such an array, empty, or an id that is no integer, outside the vocabulary or listed twice
    """
    if not path.is_file():
        raise MissingFileError("no such file", file=path)
    size = path.stat().st_size
    if size > _MAX_JSON:
        raise ConfigError("too large for a list of token ids", file=path, expected=f"<= {_MAX_JSON}", found=size)
    try:
        ids = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}", file=path) from None
    if not isinstance(ids, list) or not ids:
        found = "an empty array" if isinstance(ids, list) else type(ids).__name__
        raise ConfigError("not a list of token ids", file=path, expected="a JSON array of integers", found=found)
    first: dict[int, int] = {}
    for place, token in enumerate(ids):
        where = f"[{place}]"
        if type(token) is not int:
            raise ConfigError("not a token id", file=path, where=where, expected="an integer", found=str(token)[:40])
        if not 0 <= token < vocab_size:
            raise ConfigError(
                "outside the vocabulary", file=path, where=where, expected=f"0 to {vocab_size - 1}", found=token
            )
        if first.setdefault(token, place) != place:
            raise ConfigError(f"token {token} is also at [{first[token]}]", file=path, where=where)
    return ids


def keep_rows(base: Checkpoint, ids: list[int]) -> Checkpoint:
    """The model with these rows of its head alone, in this order, and an untied configuration; see `read_ids`."""
    return _KeptRows(base, ids)


class _KeptRows(WrappedCheckpoint):
    def __init__(self, base: Checkpoint, ids: list[int]) -> None:
        super().__init__(base, replace(base.config, kept_rows=len(ids), tie_word_embeddings=False))
        self._ids = np.array(ids, np.int64)

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self.base.shape(name)
        return (len(self._ids), *shape[1:]) if name == HEAD.name else shape

    def read(self, name: str, rows: slice | None = None) -> Float32:
        if name != HEAD.name:
            return self.base.read(name, rows)
        ids = self._ids[slice(*row_range(rows, len(self._ids)))]
        values = np.empty((len(ids), *self.base.shape(name)[1:]), np.float32)
        order = np.argsort(ids)
        for places in _runs(order, ids[order]):
            first = int(ids[places[0]])
            part = self.base.read(name, slice(first, int(ids[places[-1]]) + 1))
            values[places] = part[ids[places] - first]
        return values

    def locate(self, name: str, row: int) -> tuple[Path, str, int]:
        return super().locate(name, int(self._ids[row]) if name == HEAD.name else row)


def _runs(order: npt.NDArray[np.intp], ids: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.intp]]:
    """Places of rows that are near each other; `ids` are sorted."""
    if len(ids):
        yield from np.split(order, np.flatnonzero(np.diff(ids) > _GAP) + 1)
