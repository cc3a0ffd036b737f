"""Carries a plan out: reads source tensors by ranges of rows and sets them in one engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from layouts.stored import EngineLayout
from pipeline.checkpoint.protocol import Checkpoint, Float32, locate
from pipeline.errors import NotFiniteError
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


def does_not_fit(checkpoint: Checkpoint, source: str, first_row: int, values: Float32, codec: str) -> NotFiniteError:
    """The error for rows that a codec refuses: names the source's own file and tensor, and the largest element.

    Parameters
    ----------
    source : HF name of the tensor whose rows from `first_row` on are `values`
    """
    row, column = (int(i) for i in np.unravel_index(int(np.abs(values).argmax()), values.shape))
    file, tensor, there = locate(checkpoint, source, first_row + row)
    place = [there, column] if len(checkpoint.shape(source)) > 1 else [column]
    found = float(values[row, column])
    return NotFiniteError(f"element {place} does not fit {codec}", file=file, where=tensor, found=found)


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
            prototype = refitter.prototype(assignment.tensor)
            for first, values in row_ranges(checkpoint, source, prototype.shape):
                try:
                    refitter.set(assignment.tensor, values, first)
                except NotFiniteError:
                    raise does_not_fit(checkpoint, source, first, values, prototype.codec) from None
        return refitter.commit()
