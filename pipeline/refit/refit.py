"""Carries a plan out: reads source tensors by ranges of rows and sets them in one engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from layouts.stored import EngineLayout
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.refit.plan import EnginePlan
from pipeline.refit.refitter import EngineRefitter, EngineReport

ELEMENTS_AT_A_TIME = 1 << 22


def row_ranges(checkpoint: Checkpoint, source: str, shape: tuple[int, int]) -> Iterator[tuple[int, Float32]]:
    """First row and float32 `[rows, cols]` of consecutive ranges of a source tensor; a vector is one row."""
    if len(checkpoint.shape(source)) == 1:
        yield 0, checkpoint.read(source)[None]
        return
    rows, cols = shape
    step = max(1, ELEMENTS_AT_A_TIME // cols)
    for first in range(0, rows, step):
        yield first, checkpoint.read(source, slice(first, min(first + step, rows)))


def refit_engine(
    template: Path, layout: EngineLayout, plan: EnginePlan, checkpoint: Checkpoint, output: Path
) -> EngineReport:
    """Write `output`: the template with every weight of the plan replaced by the source's.

    Raises
    ------
    EngineSetError : whatever the source, the layout or the proof finds; `output` is then not there.
    """
    with EngineRefitter(template, layout, output) as refitter:
        for assignment in plan.assignments:
            (source,) = assignment.sources
            for first, values in row_ranges(checkpoint, source, refitter.prototype(assignment.tensor).shape):
                refitter.set(assignment.tensor, values, first)
        return refitter.commit()
