"""Typed, checked access to the metadata of a GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from pipeline.tokenizer.errors import TokenizerError

T = TypeVar("T", bool, int, str)


def scalar(metadata: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    """The value of `key`, or None when it is absent. Raises TokenizerError when it is of another type."""
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TokenizerError("of another type", where=key, expected=kind.__name__, found=type(value).__name__)
    return value


def required(metadata: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """As `scalar`, but an absent key raises TokenizerError."""
    value = scalar(metadata, key, kind)
    if value is None:
        raise TokenizerError("not in the GGUF's metadata", where=key)
    return value


def array(metadata: Mapping[str, Any], key: str) -> list[Any] | None:
    """The array `key` as a list of Python values, or None when it is absent."""
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return list(value.tolist())
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise TokenizerError("of another type", where=key, expected="array", found=type(value).__name__)
    return list(value)


def strings(metadata: Mapping[str, Any], key: str) -> list[str] | None:
    """As `array`, every element checked to be a string."""
    values = array(metadata, key)
    if values is None:
        return None
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise TokenizerError("not a string", where=f"{key}[{i}]", found=type(value).__name__)
    return values


def numbers(metadata: Mapping[str, Any], key: str, count: int) -> list[Any] | None:
    """The first `count` numbers of an array that must have at least as many."""
    values = array(metadata, key)
    if values is None:
        return None
    if len(values) < count:
        raise TokenizerError("shorter than the vocabulary", where=key, expected=count, found=len(values))
    for i, value in enumerate(values[:count]):
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TokenizerError("not a number", where=f"{key}[{i}]", found=type(value).__name__)
    return values[:count]
