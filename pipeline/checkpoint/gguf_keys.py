"""Typed, checked access to the metadata of a GGUF."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.checkpoint.gguf_header import MetadataArray
from pipeline.checkpoint.slots import MAX_LAYERS, inside_vocabulary
from pipeline.checkpoint.source_file import CheckpointWarning
from pipeline.errors import CheckpointError
from pipeline.model import ARCHITECTURES, EMBEDDING


class GgufKeys:
    """Typed access to the keys of the file's own architecture."""

    def __init__(self, metadata: Mapping[str, Any], file: Path) -> None:
        self.metadata, self.file = metadata, file
        kind = metadata.get("general.type", "model")
        if kind != "model":
            raise self.bad("general.type", "not a base model", "model", kind)
        self.architecture = str(metadata.get("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            known = f"one of {', '.join(ARCHITECTURES)}"
            raise self.bad("general.architecture", "unknown architecture", known, self.architecture)

    def bad(self, where: str, reason: str, expected: object, found: object) -> CheckpointError:
        return CheckpointError(reason, file=self.file, where=where, expected=expected, found=found)

    def full(self, key: str) -> str:
        return f"{self.architecture}.{key}"

    def get(self, key: str) -> Any:
        """The value, or None; an array with one value per layer counts as that value when all are equal."""
        value = self.metadata.get(self.full(key))
        if isinstance(value, MetadataArray):
            if len(value) > MAX_LAYERS:
                raise self.bad(self.full(key), "too many values", f"<= {MAX_LAYERS}", len(value))
            different = set(value)
            if len(different) != 1:
                raise self.bad(self.full(key), "layers differ", "one value", f"{len(different)} values")
            return different.pop()
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        value = default if value is None else value
        if type(value) is not int or not 0 < value < 1 << 31:
            raise self.bad(self.full(key), "missing or impossible value", "a positive integer", value)
        return value

    def positive(self, key: str, default: float | None) -> float:
        """A float32 as the shortest decimal that rounds to it, which is what a `config.json` says (1e-05)."""
        value = self.get(key)
        value = default if value is None else value
        if type(value) is not float or not 0 < value < math.inf:
            found = f"the integer {value}" if type(value) is int else value
            raise self.bad(self.full(key), "missing or impossible value", "a positive float32", found)
        return float(str(np.float32(value)))

    def require(self, key: str, allowed: tuple[Any, ...]) -> None:
        value = self.get(key)
        if value is not None and value not in allowed:
            raise self.bad(self.full(key), "not supported by the engines", allowed[-1], value)

    def warn_of_vocabulary(self, rows: int) -> None:
        """The embedding's rows count; a key that says otherwise is worth a word."""
        said = self.get("vocab_size")
        if said is not None and said != rows:
            text = f"{self.file}: {self.full('vocab_size')}: {said} is ignored, {EMBEDDING.gguf} has {rows} rows"
            warnings.warn(text, CheckpointWarning, stacklevel=2)

    def tokens(self, names: tuple[str, ...], vocab: int) -> tuple[int, ...]:
        """Distinct ids under these keys, in their order; one outside the vocabulary is dropped with a warning."""
        found: dict[int, None] = {}
        for key in (f"tokenizer.ggml.{name}" for name in names):
            value = self.metadata.get(key)
            # converters write 2^32 - 1 for "none"
            if value is None or value == 0xFFFFFFFF:
                continue
            if type(value) is not int:
                raise self.bad(key, "not a token id", "an integer", value)
            if inside_vocabulary(value, vocab, self.file, key):
                found[value] = None
        return tuple(found)
