"""Compilers by the name that a config gives: `compile(checkpoint, output directory, options) -> files`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline.checkpoint.protocol import Checkpoint
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model

REFERENCE = "reference"

Compile = Callable[[Checkpoint, Path, CompileOptions], list[Path]]

COMPILERS: dict[str, Compile] = {REFERENCE: compile_model}
