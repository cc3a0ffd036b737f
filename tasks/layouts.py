"""Layouts: marker builds, decode, sidecar."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import luigi

from layouts.axl4 import write_axl4
from layouts.sidecar import read_layout, write_layout
from pipeline.axmodel.blob import weight_blob
from pipeline.engineset.names import AXL4_FILE
from pipeline.toolchain.decode import decode_builds
from pipeline.toolchain.kinds import KINDS, LAYER
from pipeline.toolchain.markers import BUILDS, CONFIRM, marker_checkpoint, plan_markers
from pipeline.toolchain.templates import TEMPLATE_FILE, compile_directory
from tasks import paths
from tasks.base import EngineSetTask


class BuildMarkers(EngineSetTask):
    """Compile marker build 0, 1 or 2 (the confirming one) of a one-layer model."""

    marker = luigi.IntParameter()

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.marker_directory(self.build, self.job, self.marker) / TEMPLATE_FILE)

    def work(self) -> None:
        checkpoint = marker_checkpoint(plan_markers(self.job.template_model), self.marker)
        directory = paths.marker_directory(self.build, self.job, self.marker)
        weights = "F32" if self.marker == CONFIRM else "BF16"
        compile_directory(checkpoint, self.job.options, directory, None, weights)


class DecodeLayout(EngineSetTask):
    """Where every element of one kind of engine lives, from the marker builds alone."""

    kind = luigi.ChoiceParameter(choices=KINDS)

    def requires(self) -> Iterator[luigi.Task]:
        yield from (BuildMarkers(marker=marker, **self.shared()) for marker in range(BUILDS))

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.layout_path(self.build, self.job, self.kind))

    def work(self) -> None:
        engines = [paths.marker_engine(self.build, self.job, marker, self.kind) for marker in range(BUILDS)]
        layout = decode_builds(self.job.template_model, self.kind, engines)
        path = paths.layout_path(self.build, self.job, self.kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_layout(path, layout)


class WriteSidecar(EngineSetTask):
    """The published loader's sidecar of a layer, `layout_v4.bin`; offsets are those of the marker builds' layer engine."""

    def requires(self) -> luigi.Task:
        return DecodeLayout(kind=LAYER, **self.shared())

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.axl4_path(self.build, self.job))

    def work(self) -> None:
        layout = read_layout(paths.layout_path(self.build, self.job, LAYER))
        engine = paths.marker_engine(self.build, self.job, 0, LAYER)
        lost = write_axl4(paths.axl4_path(self.build, self.job), layout, weight_blob(engine).offset)
        if lost:
            print(f"{AXL4_FILE}: {len(lost)} things it cannot hold, such as {lost[0]}", file=sys.stderr, flush=True)
