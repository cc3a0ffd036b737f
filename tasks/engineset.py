"""Patched engines, and the set that they make."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import luigi
import msgspec
from luigi.event import Event

from layouts.sidecar import read_layout
from pipeline import paths
from pipeline.engineset.assemble import SetParts, assemble_set
from pipeline.engineset.check import check_job
from pipeline.engineset.manifest import AdapterEntry, SourceEntry, TemplateEntry
from pipeline.engineset.names import MANIFEST_FILE, VOCAB_KEEP_FILE
from pipeline.engineset.whole import set_damage
from pipeline.errors import EngineSetError
from pipeline.files import make_way, point_link, write_json
from pipeline.model import HEAD
from pipeline.refit.plan import all_plans, describe_plan, folded_kinds, plan_engine
from pipeline.refit.refit import refit_engine
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, KINDS, LAYER, POST_ENGINE
from pipeline.toolchain.template_decode import decoded_options
from pipeline.toolchain.template_file import read_template
from tasks import dag, progress
from tasks.base import EngineSetTask
from tasks.parts import hold_parts
from tasks.sidecar import WriteSidecar
from tasks.templates import ConfirmTemplate

_LINKED: set[Path] = set()


class CheckPlan(EngineSetTask):
    """Source against templates, all faults at once, before a byte is written."""

    def requires(self) -> luigi.Task:
        return ConfirmTemplate(**self.shared())

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.plan_path(self.build, self.job))

    def is_complete(self) -> bool:
        """The plan has been checked, or the set is there."""
        return super().is_complete() or self.set_is_whole()

    def work(self) -> None:
        model, layouts = self.job.template_model, self.layouts()
        check_job(self.job, layouts)
        write_json(paths.plan_path(self.build, self.job), describe_plan(all_plans(model, folded_kinds(layouts))))


class _Sealed(msgspec.Struct):
    """The field of a patched engine's report that names its bytes."""

    sha256: str


class _PatchTask(EngineSetTask):
    """Base of the tasks that write the source's weights into one engine."""

    kind = ""
    layer = 0

    def requires(self) -> Iterator[luigi.Task]:
        yield CheckPlan(**self.shared())
        yield ConfirmTemplate(**self.shared())  # a plan that was checked does not say that the template still holds

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.report_path(self.build, self.job, self.kind, self.layer))

    def is_complete(self) -> bool:
        """The engine and its report wait for their set, or the set is there."""
        return super().is_complete() or self.set_is_whole()

    def damage(self) -> str | None:
        part = paths.part_path(self.build, self.job, self.kind, self.layer)
        path = paths.report_path(self.build, self.job, self.kind, self.layer)
        try:
            report = msgspec.json.decode(path.read_bytes(), type=_Sealed)
        except (msgspec.MsgspecError, RecursionError) as error:
            return f"{path}: not the report of an engine: {error}"
        return self.job.hashes.damage(part.parent, {part.name: report.sha256})

    def work(self) -> None:
        job = self.job
        template = paths.template_engine(self.build, job, self.kind, self.layer)
        layout = read_layout(paths.layout_path(self.build, job, self.kind))
        folded = self.kind in folded_kinds({self.kind: layout})
        plan = plan_engine(job.template_model, self.kind, self.layer, folded)
        part = make_way(paths.part_path(self.build, job, self.kind, self.layer))
        report = refit_engine(template, layout, plan, job.checkpoint, part, job.config.scales)
        sealed = report.as_dict() | {"sha256": job.hashes.sha256(part)}
        write_json(paths.report_path(self.build, job, self.kind, self.layer), sealed)


class PatchLayer(_PatchTask):
    kind = LAYER
    layer = luigi.IntParameter()


class PatchPost(_PatchTask):
    kind = POST_ENGINE


class PatchEmbedding(_PatchTask):
    kind = EMBEDDING_ENGINE


class BuildEngineSet(EngineSetTask):
    """The main job: an engine set in a directory named by the hash of its inputs."""

    def requires(self) -> Iterator[luigi.Task]:
        if self.job.template_directory is not None and not ConfirmTemplate(**self.shared()).complete():
            self.job.check_finished_weights()  # before markers are compiled for nothing
        hold_parts(paths.parts_directory(self.build, self.job), paths.parts_lock(self.build, self.job))
        for layer in range(self.job.template_model.num_hidden_layers):
            yield PatchLayer(layer=layer, **self.shared())
        yield PatchPost(**self.shared())
        yield PatchEmbedding(**self.shared())
        yield WriteSidecar(**self.shared())

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.set_directory(self.build, self.job) / MANIFEST_FILE)

    def is_complete(self) -> bool:
        """The set is there and the link of its name points to it, or did when this process had made it.

        Another build of the same name may have pointed the link to its own set since.
        """
        directory, link = paths.set_directory(self.build, self.job), paths.set_link(self.build, self.job)
        return self.set_is_whole() and (directory in _LINKED or link.resolve() == directory.resolve())

    def work(self) -> None:
        final = paths.set_directory(self.build, self.job)
        damage = set_damage(final, self.job.hashes)
        if damage is not None:
            if final.exists():
                progress.report_damage(damage)
            self._assemble()
        point_link(paths.set_link(self.build, self.job), final)
        _LINKED.add(final)
        shutil.rmtree(paths.parts_directory(self.build, self.job), ignore_errors=True)
        print(f"engine set: {final}", flush=True)

    def _assemble(self) -> None:
        job, final = self.job, paths.set_directory(self.build, self.job)
        for path in job.changed_sources():
            raise EngineSetError("the source has changed while it was read", file=path)
        partial = final.with_name(f".{final.name}.partial")
        parts = self._parts()
        assemble_set(parts, job.checkpoint, self._source(), partial, final)
        progress.report_clipped({path.name: report for path, report in parts.engines.items()})

    def _parts(self) -> SetParts:
        job = self.job
        engines = {(LAYER, layer) for layer in range(job.template_model.num_hidden_layers)}
        engines |= {(POST_ENGINE, 0), (EMBEDDING_ENGINE, 0)}
        reports = {
            paths.part_path(self.build, job, *engine): json.loads(
                paths.report_path(self.build, job, *engine).read_text()
            )
            for engine in sorted(engines)
        }
        layouts = tuple(paths.layout_path(self.build, job, kind) for kind in KINDS)
        return SetParts(
            name=job.config.name,
            identity=job.identity,
            engines=reports,
            layouts=layouts,
            names=job.names,
            template=self._template(),
            scales=job.config.scales,
            kept=job.kept,
            carried=None if job.package is None else job.package.carried(),
        )

    def _template(self) -> TemplateEntry:
        job = self.job
        template = job.template or read_template(paths.template_directory(self.build, job))
        options = job.options.as_dict() if job.package is None else decoded_options(job.options, self.layouts())
        layouts = {
            path.name: job.hashes.sha256(path) for path in (paths.layout_path(self.build, job, k) for k in KINDS)
        }
        return TemplateEntry(template.toolchain, template.version, options, template.files, layouts)

    def _source(self) -> SourceEntry:
        job, checkpoint = self.job, self.job.checkpoint
        tied = checkpoint.config.tie_word_embeddings
        types = [checkpoint.type_name(name) for name in checkpoint.names() if not (tied and name == HEAD.name)]
        counts = {kind: types.count(kind) for kind in sorted(set(types))}
        adapter = None
        if job.adapter is not None:
            adapter = AdapterEntry(str(job.adapter.path), job.adapter.scale, job.adapter_hashes)
        kept = "" if job.kept is None else VOCAB_KEEP_FILE
        return SourceEntry(str(job.source), job.source_hashes, counts, adapter, kept)


BuildEngineSet.event_handler(Event.DEPENDENCY_DISCOVERED)(dag.print_dag)
