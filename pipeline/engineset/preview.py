"""What a build would do, told before it does anything: sources and transforms, faults, clipping, bytes, confirmation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from layouts.sidecar import read_layout
from layouts.stored import EngineLayout
from pipeline import paths
from pipeline.checkpoint.slots import model_slots
from pipeline.engineset.check import check_finished, check_job, confirm_layouts
from pipeline.engineset.preview_engines import EnginePreview, measure_engine, preview_engine
from pipeline.errors import ConfigError, EngineSetError, MismatchError, fault_lines
from pipeline.job import Job
from pipeline.refit.plan import (
    MISMATCHED,
    MISSING,
    UNUSED,
    all_plans,
    dimension_faults,
    folded_kinds,
    shape_faults,
    tensor_faults,
    unused_faults,
)
from pipeline.refit.refused import PlanRefusedError
from pipeline.seal import seal_damage
from pipeline.toolchain.kinds import KINDS

Confirmed = Literal["yes", "no", "refused"]
REFUSED = "refused"
_KINDS = (MISSING, UNUSED, MISMATCHED)


@dataclass
class Preview:
    """The whole plan.

    confirmed, why : whether the layouts are confirmed on this very template; why not, and what the build does about it
    faults : `missing`, `unused`, `mismatched`, `refused` -> lines
    cache : the one directory in which a plan keeps anything: hashes of files, sources that packages hold in pieces
    """

    name: str
    source: str
    adapter: str
    scales: str
    templates: str
    cache: str
    confirmed: Confirmed = "no"
    why: list[str] = field(default_factory=list)
    engines: list[EnginePreview] = field(default_factory=list)
    faults: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in (*_KINDS, REFUSED)})

    @property
    def refused(self) -> bool:
        """Whether a build would fail."""
        return self.confirmed == "refused" or any(self.faults.values())


def preview_job(build: Path, job: Job) -> Preview:
    """Look at everything that a build would, as far as it goes without compiling or decoding; nothing is written but hashes."""
    named = job.template_directory or "compiled by the build"
    adapter = "" if job.adapter is None else f"{job.adapter.path} x {job.adapter.scale:g}"
    found = Preview(job.config.name, str(job.source), adapter, job.config.scales, str(named), str(build))
    with _faults_into(found):
        _ = job.checkpoint, job.compiled_model
    if found.refused:
        found.why = ["source and templates have to be mended first"]
        return found
    found.faults[MISMATCHED] += dimension_faults(job.compiled_model, job.checkpoint)
    if not found.refused:
        with _faults_into(found):
            _ = job.template_model
    layouts = None if found.refused else _layouts(build, job, found)
    _find_faults(job, layouts, found)
    if not found.faults[MISMATCHED] and not found.faults[MISSING]:
        _add_engines(build, job, layouts, found)
    return found


@contextmanager
def _faults_into(found: Preview) -> Iterator[None]:
    try:
        yield
    except EngineSetError as error:
        kind = MISMATCHED if isinstance(error, MismatchError) else REFUSED
        found.faults[kind] += [line for line in fault_lines(error) or [] if line not in found.faults[kind]]


def _layouts(build: Path, job: Job, found: Preview) -> Mapping[str, EngineLayout] | None:
    """The cached layouts, confirmed or not, which is noted; None where there are none yet."""
    sidecars = {kind: paths.layout_path(build, job, kind) for kind in KINDS}
    if any(seal_damage(paths.seal_path(path), job.hashes) for path in sidecars.values()):
        how = "the build decodes it from one engine of each kind and their checkpoint"
        if job.package is None:
            how = "the build compiles marker builds and decodes it from them"
        found.why = [f"no layout for these templates yet, decode needed: {how}"]
        return None
    layouts = {kind: read_layout(path) for kind, path in sidecars.items()}
    files = paths.confirmed_files(build, job)
    if not all(path.is_file() for path in files):
        found.why = ["the templates are not there yet: the build compiles them and confirms the layout on every engine"]
        return layouts
    if seal_damage(paths.confirmed_path(build, job), job.hashes, files) is None:
        found.confirmed = "yes"
        return layouts
    try:
        check_finished(job)
        confirm_layouts(build, job, layouts)
        found.confirmed = "yes"
    except EngineSetError as error:
        found.confirmed, found.why = "refused", fault_lines(error) or []
    return layouts


def _find_faults(job: Job, layouts: Mapping[str, EngineLayout] | None, found: Preview) -> None:
    model, checkpoint = job.compiled_model, job.checkpoint
    if layouts is None:
        names = set(checkpoint.names())
        wanted = ((s.name, (1, *s.shape)[-2:], s.name in names) for s in model_slots(model))
        listed = [fault for slot in wanted for fault in shape_faults(checkpoint, *slot)]
        listed += unused_faults(model, checkpoint)
    else:
        listed = list(tensor_faults(model, layouts, checkpoint))
    for kind, line in listed:
        found.faults[kind].append(line)
    if layouts is not None and not any(found.faults.values()):
        try:
            check_job(job, layouts)
        except PlanRefusedError as error:
            found.faults[MISMATCHED] += error.faults
        except ConfigError as error:
            found.faults[REFUSED] += fault_lines(error) or []


def _add_engines(build: Path, job: Job, layouts: Mapping[str, EngineLayout] | None, found: Preview) -> None:
    folded = folded_kinds(layouts) if layouts is not None else [k for k in KINDS if job.options.folds(k)]
    sound = found.confirmed == "yes" and not any(found.faults[kind] for kind in _KINDS)
    for plan in all_plans(job.compiled_model, folded):
        layout = None if layouts is None else layouts[plan.kind]
        found.engines.append(preview_engine(job, layout, plan))
        if layout is not None and sound:
            with _faults_into(found):
                template = paths.template_engine(build, job, plan.kind, plan.layer)
                measure_engine(job, layout, plan, template, found.engines[-1])
