"""Carries a plan out: reads source tensors by ranges of rows and sets them in one engine."""

from __future__ import annotations

from pathlib import Path

from layouts.stored import EngineLayout
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.refit.plan import EnginePlan
from pipeline.refit.refitter import EngineRefitter, EngineReport

ELEMENTS_AT_A_TIME = 1 << 22


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
            rows, cols = refitter.prototype(assignment.tensor).shape
            if len(checkpoint.shape(source)) == 1:
                refitter.set(assignment.tensor, checkpoint.read(source))
                continue
            step = max(1, ELEMENTS_AT_A_TIME // cols)
            for first in range(0, rows, step):
                part = checkpoint.read(source, slice(first, min(first + step, rows)))
                refitter.set(assignment.tensor, part, first)
        return refitter.commit()
