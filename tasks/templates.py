"""Templates: compile them, walk them, confirm the layouts on them."""

from __future__ import annotations

from collections.abc import Iterator

import luigi

from pipeline.axmodel.describe import describe_directory
from pipeline.files import write_json
from pipeline.toolchain.kinds import KINDS
from pipeline.toolchain.markers import CONFIRM
from pipeline.toolchain.templates import TEMPLATE_FILE, compile_template, confirm_template
from tasks import paths
from tasks.base import EngineSetTask
from tasks.layouts import BuildMarkers, DecodeLayout


class CompileTemplate(EngineSetTask):
    """Engines of seeded noise in the shape of the source."""

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.template_directory(self.build, self.job) / TEMPLATE_FILE)

    def work(self) -> None:
        compile_template(self.job.template_model, self.job.options, paths.template_directory(self.build, self.job))


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
        yield WalkTemplate(**self.shared())
        yield BuildMarkers(marker=CONFIRM, **self.shared())
        yield from (DecodeLayout(kind=kind, **self.shared()) for kind in KINDS)

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.confirmed_path(self.build, self.job))

    def work(self) -> None:
        others = {kind: paths.marker_engine(self.build, self.job, CONFIRM, kind) for kind in KINDS}
        confirmed = confirm_template(paths.template_directory(self.build, self.job), self.layouts(), others)
        write_json(paths.confirmed_path(self.build, self.job), confirmed)
