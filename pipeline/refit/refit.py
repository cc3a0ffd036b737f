"""Carries a plan out: reads source tensors by ranges of rows and sets them in one engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from layouts.errors import BiasRefused, ScaleRefused
from layouts.stored import EngineLayout, StoredTensor
from pipeline.checkpoint.protocol import WeightSource, locate
from pipeline.errors import NotFiniteError
from pipeline.refit.assigned import AssignedWeights
from pipeline.refit.choose import Given, ScaleMode, bias_name
from pipeline.refit.plan import EnginePlan
from pipeline.refit.refitter import EngineRefitter
from pipeline.refit.report import EngineReport


def does_not_fit(
    weights: AssignedWeights, stored: StoredTensor, given: Given, cause: BaseException | None = None
) -> NotFiniteError:
    """The error for rows that a codec refuses: names the source's own file and tensor, and element or entry.

    Parameters
    ----------
    cause : what the codec said; the largest element is named unless it refused an entry
    """
    source, (name, *others), codec = weights.source, weights.sources(stored), stored.codec
    if isinstance(cause, BiasRefused):
        file, tensor, there = locate(source, others[-1] if bias_name(stored) else name, given.first + cause.at[0])
        return NotFiniteError(f"row {there}: {cause.reason} in {codec}", file=file, where=tensor, found=cause.found)
    if isinstance(cause, ScaleRefused):
        row, group = cause.at
        file, tensor, there = locate(source, name, given.first + row)
        reason = f"row {there}, group {group}: the scale entry would be 0 or infinite in {codec}"
        return NotFiniteError(reason, file=file, where=tensor, found=cause.found)
    row, column = (int(i) for i in np.unravel_index(int(np.abs(given.values).argmax()), given.values.shape))
    file, tensor, there = locate(source, name, given.first + row)
    place, found = _place(stored, there, column), float(given.values[row, column])
    return NotFiniteError(f"element {place} does not fit {codec}", file=file, where=tensor, found=found)


def _place(stored: StoredTensor, row: int, column: int) -> list[int]:
    """Where the source has an element of the stored matrix."""
    if not stored.order:
        return [row, column] if stored.shape[0] > 1 else [column]
    axes = np.unravel_index(row * stored.shape[1] + column, [stored.dims[axis] for axis in stored.order])
    found = dict(zip(stored.order, axes, strict=True))
    return [int(found[axis]) for axis in range(len(stored.dims))]


def refit_engine(
    template: Path,
    layout: EngineLayout,
    plan: EnginePlan,
    source: WeightSource,
    output: Path,
    scales: ScaleMode = "refit",
) -> EngineReport:
    """Write `output`: the template with every weight of the layout replaced by what the plan makes of the source.

    Raises
    ------
    EngineSetError : whatever the source, the layout or the proof finds; `output` is then not there.
    """
    weights = AssignedWeights(source, plan, layout)
    with EngineRefitter(template, layout, output, scales) as refitter:
        for stored in layout.tensors:
            for given in weights.ranges(stored):
                try:
                    refitter.set(stored.name, given.values, given.first, given.bias)
                except NotFiniteError as error:
                    raise does_not_fit(weights, stored, given, error.__cause__) from None
        report = refitter.commit()
    for stored in layout.tensors:
        report.tensors[stored.name].sources = weights.sources(stored)
    return report
