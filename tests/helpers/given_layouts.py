"""Builds that need no decode."""

from __future__ import annotations

from layouts.sidecar import write_layout
from pipeline import paths
from pipeline.resolve import resolve_job
from pipeline.seal import write_seal
from pipeline.toolchain.kinds import KINDS
from pipeline.toolchain.reference import engine_layout
from tests.helpers.sets import Tiny


def give_layouts(tiny: Tiny) -> None:
    """Put the compiler's own layouts into the build directory, so that no marker build has to be decoded."""
    job = resolve_job(tiny.config, None, paths.hash_database(tiny.build))
    for kind in KINDS:
        path = paths.layout_path(tiny.build, job, kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_layout(path, engine_layout(job.template_model.single(), job.options, kind))
        write_seal(paths.seal_path(path), [path], job.hashes)
