"""Decoding layouts from marker builds, patching engines, and choosing scales."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layouts.sidecar import read_layout
from pipeline import paths
from pipeline.container.blob import read_blob
from pipeline.engineset.names import engine_file
from pipeline.refit.choose import ScaleMode
from pipeline.refit.plan import folded_kinds, plan_engine
from pipeline.refit.refit import refit_engine
from pipeline.toolchain.decode import decode_builds
from pipeline.toolchain.kinds import LAYER, POST_ENGINE
from tests.bench.measure import Row, median_seconds
from tests.bench.set_build import copy_file
from tests.bench.workspace import Workspace

MEASURED = ("bf16", "s8")
SEARCHED = ("s8", "s4")
RUNS = {LAYER: 3, POST_ENGINE: 1}
"""Decoding an s8 head takes tens of seconds."""


def measure(workspaces: dict[str, Workspace]) -> Iterator[Row]:
    for name in MEASURED:
        for kind in RUNS:
            yield _decode(workspaces[name], kind)
            yield _patch(workspaces[name], kind)
    for name in SEARCHED:
        yield _search(workspaces[name])


def _decode(workspace: Workspace, kind: str) -> Row:
    job = workspace.job
    builds = job.marker_plan.builds_of(kind)
    engines = [paths.marker_engine(workspace.build, job, build, kind) for build in builds]
    elements = sum(int(np.prod(t.shape)) for t in read_layout(paths.layout_path(workspace.build, job, kind)).tensors)
    ours = median_seconds(lambda: decode_builds(job.marker_plan, kind, engines), RUNS[kind])
    read = median_seconds(lambda: [int(read_blob(engine).max()) for engine in engines])
    others = {"reading the builds": elements / read}
    name = f"decode the {workspace.weight_type} {kind} layout, {len(builds)} builds"
    return Row(name, elements / ours, "elements/s", others, better="higher")


def _patch(workspace: Workspace, kind: str) -> Row:
    output = workspace.folder / "patched.axmodel"
    template = workspace.templates / engine_file(workspace.job.template_model, workspace.job.options.prefill_len, kind)
    size = template.stat().st_size
    ours = _refit_seconds(workspace, kind, "refit")
    copied = median_seconds(lambda: copy_file(template, output), 5, lambda: output.unlink(missing_ok=True))
    output.unlink()
    others = {"copy of the same bytes": size / copied / 1e6}
    name = f"patch and prove the {workspace.weight_type} {kind} engine"
    return Row(name, size / ours / 1e6, "MB/s", others, better="higher")


def _search(workspace: Workspace) -> Row:
    ours, refit = (_refit_seconds(workspace, LAYER, mode) for mode in ("search", "refit"))
    return Row(f"patch an {workspace.weight_type} layer, scales by search", ours, "s", {"scales by refit": refit})


def _refit_seconds(workspace: Workspace, kind: str, scales: ScaleMode) -> float:
    """Median of patching an engine of the templates; the output is removed."""
    job, output = workspace.job, workspace.folder / "patched.axmodel"
    template = workspace.templates / engine_file(job.template_model, job.options.prefill_len, kind)
    layout = read_layout(paths.layout_path(workspace.build, job, kind))
    plan = plan_engine(job.template_model, kind, folded=kind in folded_kinds({kind: layout}))

    def clear() -> None:
        output.unlink(missing_ok=True)

    seconds = median_seconds(lambda: refit_engine(template, layout, plan, job.checkpoint, output, scales), 5, clear)
    clear()
    return seconds
