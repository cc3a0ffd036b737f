"""What a build says when it is done."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.progress import report_clipped


def report(**clipped: int) -> dict[str, Any]:
    return {"tensors": {name: {"clipped": count} for name, count in clipped.items()}}


def test_clipped_elements_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    report_clipped({"a.axmodel": report(q=0, k=3), "b.axmodel": report(q=8)})
    assert capsys.readouterr().err == "clipped: 11 elements in 2 tensors, most in b.axmodel: q (8)\n"


def test_nothing_clipped_is_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    report_clipped({"a.axmodel": report(q=0)})
    assert capsys.readouterr().err == ""
