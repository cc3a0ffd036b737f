"""Flags that contradict each other are refused before anything is compiled."""

from __future__ import annotations

import pytest

from pipeline.errors import ToolchainError
from pipeline.toolchain.options import CompileOptions


def test_fp32_is_not_truncated() -> None:
    line = r"rounding: not supported here \(expected nearest, found truncate\)"
    with pytest.raises(ToolchainError, match=line):
        CompileOptions(weight_type="fp32", rounding="truncate")
    assert CompileOptions(weight_type="bf16", rounding="truncate").rounding == "truncate"
    assert CompileOptions(weight_type="fp32").rounding == "nearest"
