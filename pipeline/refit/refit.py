"""Carries a plan out: reads source tensors by ranges of rows and sets them in one engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from layouts.errors import ScaleRefused
from layouts.stored import EngineLayout
from pipeline.checkpoint.protocol import Checkpoint, Float32, locate
from pipeline.errors import NotFiniteError
from pipeline.refit.choose import ScaleMode, row_steps
from pipeline.refit.plan import Assignment, EnginePlan, read_assigned
from pipeline.refit.refitter import EngineRefitter
from pipeline.refit.report import EngineReport


def row_ranges(checkpoint: Checkpoint, assignment: Assignment, shape: tuple[int, int]) -> Iterator[tuple[int, Float32]]:
    """First row and float32 `[rows, cols]` of consecutive ranges of an engine weight; a vector is one row."""
    for rows in row_steps(shape):
        yield rows.start, read_assigned(checkpoint, assignment, rows)


def does_not_fit(
    checkpoint: Checkpoint,
    source: str,
    first_row: int,
    values: Float32,
    codec: str,
    cause: BaseException | None = None,
) -> NotFiniteError:
    """The error for rows that a codec refuses: names the source's own file and tensor, and element or scale entry.

    Parameters
    ----------
    source : HF name of the tensor whose rows from `first_row` on are `values`
    cause : what the codec said; the largest element is named unless it refused a scale
    """
    if isinstance(cause, ScaleRefused):
        row, group = cause.at
        file, tensor, there = locate(checkpoint, source, first_row + row)
        reason = f"row {there}, group {group}: the scale entry would be 0 or infinite in {codec}"
        return NotFiniteError(reason, file=file, where=tensor, found=cause.found)
    row, column = (int(i) for i in np.unravel_index(int(np.abs(values).argmax()), values.shape))
    file, tensor, there = locate(checkpoint, source, first_row + row)
    place = [there, column] if len(checkpoint.shape(source)) > 1 else [column]
    found = float(values[row, column])
    return NotFiniteError(f"element {place} does not fit {codec}", file=file, where=tensor, found=found)


def refit_engine(
    template: Path,
    layout: EngineLayout,
    plan: EnginePlan,
    checkpoint: Checkpoint,
    output: Path,
    scales: ScaleMode = "refit",
) -> EngineReport:
    """Write `output`: the template with every weight of the plan replaced by the source's.

    Raises
    ------
    EngineSetError : whatever the source, the layout or the proof finds; `output` is then not there.
    """
    with EngineRefitter(template, layout, output, scales) as refitter:
        for assignment in plan.assignments:
            prototype = refitter.prototype(assignment.tensor)
            for first, values in row_ranges(checkpoint, assignment, prototype.shape):
                try:
                    refitter.set(assignment.tensor, values, first)
                except NotFiniteError as error:
                    source = assignment.sources[0]
                    raise does_not_fit(checkpoint, source, first, values, prototype.codec, error.__cause__) from None
        report = refitter.commit()
    for assignment in plan.assignments:
        report.tensors[assignment.tensor].sources = assignment.sources
    return report
