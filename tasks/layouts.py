"""Layouts: marker builds, decode, sidecar."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import luigi

from layouts.sidecar import write_layout
from pipeline.checkpoint.noise import Dtype
from pipeline.files import make_way
from pipeline.seal import seal_damage, write_seal
from pipeline.toolchain.decode import decode_builds
from pipeline.toolchain.kinds import KINDS
from pipeline.toolchain.markers import BUILDS, CONFIRM, marker_checkpoint, plan_markers
from pipeline.toolchain.templates import TEMPLATE_FILE, compile_directory, template_damage
from tasks import paths
from tasks.base import EngineSetTask


class BuildMarkers(EngineSetTask):
    """Compile marker build 0, 1 or 2 (the confirming one) of a one-layer model."""

    marker = luigi.IntParameter()

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.marker_directory(self.build, self.job, self.marker) / TEMPLATE_FILE)

    def damage(self) -> str | None:
        return template_damage(paths.marker_directory(self.build, self.job, self.marker), self.job.hashes)

    def work(self) -> None:
        checkpoint = marker_checkpoint(plan_markers(self.job.template_model), self.marker)
        directory = paths.marker_directory(self.build, self.job, self.marker)
        weights: Dtype = "F32" if self.marker == CONFIRM else "BF16"
        compile_directory(self.job.toolchain, checkpoint, self.job.options, directory, None, weights)


class DecodeLayout(EngineSetTask):
    """Where every element of one kind of engine lives, from the marker builds alone."""

    kind = luigi.ChoiceParameter(choices=KINDS)

    def requires(self) -> Iterator[luigi.Task]:
        yield from (BuildMarkers(marker=marker, **self.shared()) for marker in range(BUILDS))

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.seal_path(paths.layout_path(self.build, self.job, self.kind)))

    def damage(self) -> str | None:
        return seal_damage(Path(self.output().path), self.job.hashes)

    def work(self) -> None:
        engines = [paths.marker_engine(self.build, self.job, marker, self.kind) for marker in range(BUILDS)]
        layout = decode_builds(self.job.template_model, self.kind, engines)
        path = make_way(paths.layout_path(self.build, self.job, self.kind))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_layout(path, layout)
        write_seal(Path(self.output().path), [path], self.job.hashes)
