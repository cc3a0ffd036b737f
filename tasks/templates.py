"""Templates: compile them, walk them, confirm the layouts on them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import luigi

from pipeline import paths
from pipeline.axmodel.describe import describe_directory
from pipeline.engineset.check import check_finished, confirm_layouts, finished_damage
from pipeline.files import write_json
from pipeline.seal import seal_damage, write_seal
from pipeline.toolchain.kinds import KINDS
from pipeline.toolchain.template_file import TEMPLATE_FILE
from pipeline.toolchain.templates import compile_directory, compile_template, template_damage
from tasks.base import EngineSetTask
from tasks.layouts import BuildMarkers, DecodeLayout


class CompileTemplate(EngineSetTask):
    """Engines in the shape of the source, of seeded noise or of the checkpoint that the config names for them.

    Finished templates that a config names are checked only.
    """

    def output(self) -> luigi.LocalTarget:
        package = self.job.package
        own = paths.template_directory(self.build, self.job) / TEMPLATE_FILE
        return self.target(own if package is None else package.config_file)

    def damage(self) -> str | None:
        if self.job.template_directory is not None:
            return finished_damage(self.job)
        return template_damage(paths.template_directory(self.build, self.job), self.job.hashes)

    def work(self) -> None:
        job, directory = self.job, paths.template_directory(self.build, self.job)
        if job.template_directory is not None:
            check_finished(job)
        elif job.template_weights is None:
            compile_template(job.toolchain, job.template_model, job.options, directory, job.tool)
        else:
            origin, weights = job.template_origin, job.template_weights
            compile_directory(job.toolchain, weights, job.options, directory, origin=origin, tool=job.tool)


class WalkTemplate(EngineSetTask):
    """Containers to blobs with absolute file offsets, io and shape groups."""

    def requires(self) -> luigi.Task:
        return CompileTemplate(**self.shared())

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.walk_path(self.build, self.job))

    def work(self) -> None:
        write_json(
            paths.walk_path(self.build, self.job), describe_directory(paths.template_directory(self.build, self.job))
        )


class ConfirmTemplate(EngineSetTask):
    """The decoded layouts predict every weight-dependent byte of every template engine."""

    def requires(self) -> Iterator[luigi.Task]:
        yield CompileTemplate(**self.shared())  # Luigi asks direct requirements only whether they still hold
        yield WalkTemplate(**self.shared())
        if self.job.package is None:
            yield BuildMarkers(marker=self.job.marker_plan.confirm, **self.shared())
        yield from (DecodeLayout(kind=kind, **self.shared()) for kind in KINDS)

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.confirmed_path(self.build, self.job))

    def damage(self) -> str | None:
        """A template or a layout that is not the one that was confirmed."""
        return seal_damage(paths.confirmed_path(self.build, self.job), self.job.hashes, self._relied_on())

    def work(self) -> None:
        corrected = confirm_layouts(self.build, self.job, self.layouts())
        if count := sum(corrected.values()):
            print(f"template: {count} elements are one step off, as its compiler corrects", file=sys.stderr, flush=True)
        write_seal(paths.confirmed_path(self.build, self.job), self._relied_on(), self.job.hashes)

    def _relied_on(self) -> list[Path]:
        return paths.confirmed_files(self.build, self.job)
