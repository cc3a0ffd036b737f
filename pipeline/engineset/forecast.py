"""What a refit would make of one engine, in memory: the report that it would give, without a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from layouts.errors import LayoutError
from layouts.stored import EngineLayout
from layouts.view import write_tensor
from pipeline.checkpoint.protocol import WeightSource
from pipeline.container.blob import Bytes
from pipeline.refit.assigned import AssignedWeights
from pipeline.refit.choose import ScaleMode, choose_rows
from pipeline.refit.outside import CHUNK, checked_blob, owned_bits
from pipeline.refit.plan import EnginePlan
from pipeline.refit.refit import does_not_fit
from pipeline.refit.report import EngineReport, TensorReport


def forecast_engine(
    template: Path, layout: EngineLayout, plan: EnginePlan, source: WeightSource, scales: ScaleMode
) -> EngineReport:
    """The report of `refit_engine`; the weights are written to a private copy of the mapped template.

    Raises EngineSetError: whatever the source or the template holds that does not fit.
    """
    weights, report = AssignedWeights(source, plan, layout), EngineReport()
    before, after = (_mapped(template, layout, mode) for mode in ("r", "c"))
    for stored in layout.tensors:
        names, kept = tuple(copy.name for copy in stored.copies), "" if stored.scales is None else scales
        made = report.tensors[stored.name] = TensorReport(stored.codec, names, weights.sources(stored), kept)
        for given in weights.ranges(stored):
            try:
                chosen = choose_rows(stored, given, scales, before, template)
            except LayoutError as error:
                raise does_not_fit(weights, stored, given, error) from None
            write_tensor(after, stored, chosen.encoded, given.first)
            made.add(stored, given, chosen)
    report.planned_bytes = planned_bytes(layout)
    report.changed_bytes = sum(
        int(np.count_nonzero(before[at : at + CHUNK] != after[at : at + CHUNK])) for at in range(0, before.size, CHUNK)
    )
    return report


def planned_bytes(layout: EngineLayout) -> int:
    """Bytes of the blob that any tensor owns, wholly or in part."""
    spans = ((at, min(CHUNK, layout.blob_bytes - at)) for at in range(0, layout.blob_bytes, CHUNK))
    return sum(int(np.count_nonzero(owned_bits(layout, at, count))) for at, count in spans)


def _mapped(template: Path, layout: EngineLayout, mode: str) -> Bytes:
    blob = checked_blob(template, layout)
    return np.memmap(template, np.uint8, mode, blob.offset, (blob.size,))  # type: ignore[call-overload,no-any-return]
