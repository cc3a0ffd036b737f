"""Reading the tables of a sidecar: exactly the keys that are known, each of exactly its type, faults named by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from layouts.errors import LayoutError, SidecarError

T = TypeVar("T")

Table = dict[str, Any]
Kinds = dict[str, type]


def take(table: Table, where: str, optional: Kinds | None = None, **kinds: type) -> list[Any]:
    """The values of exactly the named keys, each of exactly the named type; None for an optional one not there.

    Raises SidecarError naming the key, for a table that is none too.
    """
    if not isinstance(table, dict):
        raise SidecarError("wrong type", where=where, expected="table", found=type(table).__name__)
    prefix, known = f"{where}." if where else "", kinds | (optional or {})
    for key in table.keys() - known.keys():
        raise SidecarError("unknown key", where=f"{prefix}{key}", expected=" | ".join(known))
    for key, kind in known.items():
        if key not in table and key in kinds:
            raise SidecarError("missing key", where=f"{prefix}{key}")
        if key in table and type(table[key]) is not kind:
            found = type(table[key]).__name__
            raise SidecarError("wrong type", where=f"{prefix}{key}", expected=kind.__name__, found=found)
    return [table.get(key) for key in known]


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Turn what a layout object refuses into an error of the field it was read from."""
    try:
        yield
    except LayoutError as error:
        at = f"{where}: {error.where}" if error.where else where
        raise SidecarError(error.reason, where=at, expected=error.expected, found=error.found) from error


def parsed(texts: list[object], where: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    """Strings of a list, each parsed. Raises SidecarError naming the element."""
    found: list[T] = []
    for index, text in enumerate(texts):
        at = f"{where}[{index}]"
        if not isinstance(text, str):
            raise SidecarError("wrong type", where=at, expected="str", found=type(text).__name__)
        with naming(at):
            found.append(parse(text))
    return tuple(found)


def integers(values: list[object], where: str) -> tuple[int, ...]:
    """A list of integers. Raises SidecarError."""
    found = tuple(value for value in values if type(value) is int)
    if len(found) != len(values):
        raise SidecarError("not integers", where=where, found=values)
    return found
