"""The root of all errors that a user can cause, and the errors of layouts.

`EngineSetError` lives here because `layouts` imports nothing else of ours; `pipeline.errors` re-exports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self


class EngineSetError(Exception):
    """A fault in what the user gave us. `str()` is one line that names everything known about it.

    Parameters
    ----------
    reason : what is wrong, in plain words, without a full stop
    file : the file it was found in
    where : tensor name or field path inside the file
    offset : absolute byte offset in the file
    expected, found : both sides of a mismatch; a side that is None is not printed
    """

    def __init__(
        self,
        reason: str,
        *,
        file: str | Path | None = None,
        where: str | None = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
    ) -> None:
        self.reason, self.file, self.where = reason, file, where
        self.offset, self.expected, self.found = offset, expected, found
        super().__init__(reason)

    def __str__(self) -> str:
        parts = [str(part) for part in (self.file, self.where) if part is not None]
        if self.offset is not None:
            parts.append(f"byte {self.offset}")
        line = ": ".join([*parts, self.reason])
        sides = {"expected": self.expected, "found": self.found}
        given = ", ".join(f"{side} {value}" for side, value in sides.items() if value is not None)
        if given:
            line += f" ({given})"
        return " ".join(line.split())

    def in_file(self, file: str | Path) -> Self:
        """The same fault with the file it was found in."""
        self.file = file
        return self

    def __reduce__(self) -> tuple[object, ...]:
        state = (self.reason, self.file, self.where, self.offset, self.expected, self.found)
        return _rebuild, (type(self), *state)


def _rebuild(
    kind: type[EngineSetError],
    reason: str,
    file: str | Path | None,
    where: str | None,
    offset: int | None,
    expected: object,
    found: object,
) -> EngineSetError:
    return kind(reason, file=file, where=where, offset=offset, expected=expected, found=found)


class LayoutError(EngineSetError):
    """A layout, plane or sidecar that contradicts itself or the blob it is used on."""


class ScaleRefused(LayoutError):
    """A scale that its entry cannot hold. `at` is its place in the array that was given, row and group."""

    at: tuple[int, int] = (0, 0)


class BiasRefused(ScaleRefused):
    """A bias that its entry cannot hold. `at` is its place in the array that was given, row and 0."""


class FitRefused(LayoutError):
    """No layout of bounded size describes the addresses exactly."""


class DecodeRefused(LayoutError):
    """A marker decode that does not account for every element or every weight-dependent byte."""


class SidecarError(LayoutError):
    """A sidecar file that does not parse, or cannot hold what it is asked to hold."""
