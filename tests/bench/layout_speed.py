"""Decoding layouts from marker builds, and patching engines."""

from __future__ import annotations

import numpy as np

from layouts.sidecar import read_layout
from pipeline.axmodel.blob import read_blob
from pipeline.engineset.names import engine_file
from pipeline.refit.plan import plan_engine
from pipeline.refit.refit import refit_engine
from pipeline.toolchain.decode import decode_builds
from pipeline.toolchain.kinds import LAYER, POST_ENGINE
from tasks import paths
from tests.bench.measure import Row, median_seconds
from tests.bench.set_build import copy_file
from tests.bench.workspace import Workspace

KINDS = (LAYER, POST_ENGINE)


def measure(workspace: Workspace) -> list[Row]:
    return [row for kind in KINDS for row in (_decode(workspace, kind), _patch(workspace, kind))]


def _decode(workspace: Workspace, kind: str) -> Row:
    job = workspace.job
    engines = [paths.marker_engine(workspace.build, job, build, kind) for build in range(job.marker_plan.builds + 1)]
    elements = sum(int(np.prod(t.shape)) for t in read_layout(paths.layout_path(workspace.build, job, kind)).tensors)
    ours = median_seconds(lambda: decode_builds(job.marker_plan, kind, engines))
    read = median_seconds(lambda: [int(read_blob(engine).max()) for engine in engines])
    others = {"reading the builds": elements / read}
    return Row(f"decode the layout of the {kind} engine", elements / ours, "elements/s", others, better="higher")


def _patch(workspace: Workspace, kind: str) -> Row:
    job, output = workspace.job, workspace.folder / "patched.axmodel"
    template = workspace.templates / engine_file(job.template_model, job.options.prefill_len, kind)
    layout = read_layout(paths.layout_path(workspace.build, job, kind))
    plan, size = plan_engine(job.template_model, kind), template.stat().st_size

    def clear() -> None:
        output.unlink(missing_ok=True)

    ours = median_seconds(lambda: refit_engine(template, layout, plan, job.checkpoint, output), 5, clear)
    copied = median_seconds(lambda: copy_file(template, output), 5, clear)
    clear()
    others = {"copy of the same bytes": size / copied / 1e6}
    return Row(f"patch and prove the {kind} engine", size / ours / 1e6, "MB/s", others, better="higher")
