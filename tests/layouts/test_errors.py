"""An error is one line that prints what is known and nothing that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layouts.errors import EngineSetError


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({}, "odd"),
        ({"found": 0}, "odd (found 0)"),
        ({"expected": "more"}, "odd (expected more)"),
        ({"expected": False, "found": ""}, "odd (expected False, found )"),
        (
            {"file": Path("a/b"), "where": "t", "offset": 0, "expected": 1, "found": 2},
            "a/b: t: byte 0: odd (expected 1, found 2)",
        ),
        ({"found": "two\nlines"}, "odd (found two lines)"),
    ],
)
def test_line_holds_the_sides_that_are_given(known: dict[str, Any], line: str) -> None:
    assert str(EngineSetError("odd", **known)) == line
