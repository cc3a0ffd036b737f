"""What a build would do to one engine: where each weight comes from, and what the refit will report of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from layouts.integers import INTEGERS
from layouts.stored import EngineLayout
from pipeline.engineset.forecast import forecast_engine, planned_bytes
from pipeline.engineset.transforms import Part, parts_of, transforms_of
from pipeline.job import Job
from pipeline.refit.plan import Assignment, EnginePlan
from pipeline.toolchain.kinds import LAYER, POST_ENGINE


@dataclass
class Weight:
    """One weight of an engine; `codec` is "" and `clipped` None where they are not known, as before the decode."""

    tensor: str
    sources: list[Part]
    transforms: list[str]
    codec: str = ""
    elements: int = 0
    clipped: int | None = None


@dataclass
class EnginePreview:
    """One engine: bytes that its weights own, and those of them that will differ from the template, where that is known."""

    file: str
    kind: str
    layer: int
    weights: list[Weight]
    planned_bytes: int | None = None
    changed_bytes: int | None = None


def preview_engine(job: Job, layout: EngineLayout | None, plan: EnginePlan) -> EnginePreview:
    """What is known without the template; of a layout that is not there yet, None, less."""
    weights = [_weight(job, layout, plan, item) for item in plan.assignments]
    planned = None if layout is None else planned_bytes(layout)
    return EnginePreview(job.names.file(plan.kind, plan.layer), plan.kind, plan.layer, weights, planned)


def measure_engine(job: Job, layout: EngineLayout, plan: EnginePlan, template: Path, into: EnginePreview) -> None:
    """Add what the refit of a confirmed template will report. Raises EngineSetError: what stands in its way."""
    report = forecast_engine(template, layout, plan, job.checkpoint, job.config.scales)
    into.changed_bytes = report.changed_bytes
    for weight in into.weights:
        if weight.tensor in report.tensors:
            weight.clipped = report.tensors[weight.tensor].clipped


def _weight(job: Job, layout: EngineLayout | None, plan: EnginePlan, item: Assignment) -> Weight:
    stored = None if layout is None or item.tensor not in layout.names() else layout[item.tensor]
    shape = job.checkpoint.shape(item.sources[0])
    weight = Weight(
        item.tensor,
        parts_of(job.checkpoint, item),
        transforms_of(job.checkpoint, plan, item, stored),
        elements=math.prod(shape),
        clipped=0 if job.config.scales == "refit" else None,
    )
    if stored is not None:
        weight.codec = stored.codec
    elif layout is not None:
        weight.codec = "bias entries"
    elif job.package is None:
        weight.codec = _compiled_codec(job, plan.kind, len(shape) == 1)
    if weight.codec not in ("", *INTEGERS):
        weight.clipped = 0
    return weight


def _compiled_codec(job: Job, kind: str, vector: bool) -> str:
    """What the compiler will store, by its flags."""
    options = job.options
    wanted = {LAYER: options.weight_type, POST_ENGINE: options.post_type}.get(kind, "bf16")
    return "bf16" if vector and wanted in INTEGERS else wanted
