"""Layouts: marker builds, decode, sidecar."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import luigi

from layouts.sidecar import write_layout
from layouts.stored import EngineLayout
from pipeline import paths
from pipeline.files import make_way
from pipeline.seal import seal_damage, write_seal
from pipeline.toolchain.decode import decode_builds
from pipeline.toolchain.kinds import KINDS
from pipeline.toolchain.markers import marker_checkpoint
from pipeline.toolchain.template_decode import decode_packaged
from pipeline.toolchain.template_file import TEMPLATE_FILE
from pipeline.toolchain.templates import compile_directory, template_damage
from tasks.base import EngineSetTask


class BuildMarkers(EngineSetTask):
    """Compile a marker build of a model with one layer of each type, as far as it says anything; the last one confirms."""

    marker = luigi.IntParameter()

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.marker_directory(self.build, self.job, self.marker) / TEMPLATE_FILE)

    def damage(self) -> str | None:
        return template_damage(paths.marker_directory(self.build, self.job, self.marker), self.job.hashes)

    def work(self) -> None:
        job, plan = self.job, self.job.marker_plan
        directory = paths.marker_directory(self.build, job, self.marker)
        checkpoint, kinds = marker_checkpoint(plan, self.marker), plan.kinds(self.marker)
        compile_directory(job.toolchain, checkpoint, job.options, directory, kinds=kinds, tool=job.tool)


class DecodeLayout(EngineSetTask):
    """Where every element of one kind of engine lives: from marker builds alone, or from a vendor directory and its weights."""

    kind = luigi.ChoiceParameter(choices=KINDS)

    def requires(self) -> Iterator[luigi.Task]:
        if self.job.package is None:
            yield from (BuildMarkers(marker=marker, **self.shared()) for marker in self._builds())

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.seal_path(paths.layout_path(self.build, self.job, self.kind)))

    def damage(self) -> str | None:
        return seal_damage(Path(self.output().path), self.job.hashes)

    def work(self) -> None:
        layout = self._decode()
        path = make_way(paths.layout_path(self.build, self.job, self.kind))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_layout(path, layout)
        write_seal(Path(self.output().path), [path], self.job.hashes)

    def _decode(self) -> EngineLayout:
        job = self.job
        if job.package is not None and job.template_weights is not None:
            return decode_packaged(job.package, self.kind, job.template_weights)
        engines = [paths.marker_engine(self.build, job, marker, self.kind) for marker in self._builds()]
        return decode_builds(job.marker_plan, self.kind, engines)

    def _builds(self) -> tuple[int, ...]:
        return self.job.marker_plan.builds_of(self.kind)
