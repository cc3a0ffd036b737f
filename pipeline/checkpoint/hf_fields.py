"""Typed, checked access to the keys of a `config.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.checkpoint.slots import inside_vocabulary
from pipeline.errors import CheckpointError, MissingFileError

_MAX_JSON = 64 << 20


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file whose top level is an object; anything else is refused."""
    if not path.is_file():
        raise MissingFileError("no such file", file=path)
    if path.stat().st_size > _MAX_JSON:
        raise CheckpointError("too large for JSON", file=path, expected=f"<= {_MAX_JSON}", found=path.stat().st_size)
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"not JSON: {error}", file=path) from error
    if not isinstance(data, dict):
        raise CheckpointError("not a JSON object", file=path, expected="object", found=type(data).__name__)
    return data


class Fields:
    """The keys of a JSON object; a JSON null counts as absent.

    Parameters
    ----------
    data : the object
    file : for error lines
    defaults : what absent keys mean; goes before the defaults of the single calls
    """

    def __init__(self, data: Mapping[str, Any], file: Path, defaults: Mapping[str, Any] | None = None) -> None:
        self.data, self.file, self.defaults = data, file, defaults or {}

    def get(self, key: str, default: Any = None) -> Any:
        value = self.data.get(key)
        return self.defaults.get(key, default) if value is None else value

    def bad(self, key: str, reason: str, expected: object, found: object) -> CheckpointError:
        return CheckpointError(reason, file=self.file, where=key, expected=expected, found=found)

    def count(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if type(value) is not int or not 0 < value < 1 << 31:
            raise self.bad(key, "missing or impossible value", "a positive integer", value)
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self.bad(key, "impossible value", "a positive number", value)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if type(value) is not bool:
            raise self.bad(key, "wrong type", "true or false", value)
        return value

    def require(self, key: str, *allowed: Any) -> None:
        """Refuses every value but these; absent is allowed."""
        value = self.get(key)
        if value is not None and value not in allowed:
            raise self.bad(key, "not supported by the engines", allowed[0], value)

    def object(self, key: str) -> dict[str, Any]:
        """A nested object; empty when absent."""
        value = self.get(key, {})
        if not isinstance(value, dict):
            raise self.bad(key, "wrong type", "object", type(value).__name__)
        return value

    def ids(self, key: str) -> tuple[int, ...]:
        value = self.get(key, [])
        listed = value if isinstance(value, list) else [value]
        if any(type(token) is not int for token in listed):
            raise self.bad(key, "not token ids", "an integer or a list of integers", value)
        vocab = self.count("vocab_size")
        return tuple(token for token in listed if inside_vocabulary(token, vocab, self.file, key))
