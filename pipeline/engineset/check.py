"""Everything that stands between a job and its engines, once the layouts are there: before a byte is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from layouts.stored import EngineLayout
from pipeline import paths
from pipeline.engineset.package_vocabulary import vocabulary_faults
from pipeline.errors import ConfigError, InternalError, ToolchainError
from pipeline.job import Job
from pipeline.refit.plan import check_plan
from pipeline.refit.refused import PlanRefusedError
from pipeline.toolchain.template_confirm import confirm_package
from pipeline.toolchain.template_decode import has_integers
from pipeline.toolchain.templates import confirm_template, template_damage


def check_job(job: Job, layouts: Mapping[str, EngineLayout]) -> None:
    """Source against templates, and against the files that come with a vendor directory.

    Raises
    ------
    PlanRefusedError : whatever does not fit, all of it
    ConfigError : scales for engines that have none
    """
    check_plan(job.template_model, layouts, job.checkpoint)
    if job.package is None:
        return
    faults = list(vocabulary_faults(job.package, job.checkpoint))
    if faults:
        raise PlanRefusedError(faults)
    if job.config.scales != "refit" and not has_integers(layouts):
        file, found = job.package.directory, job.config.scales
        raise ConfigError("float engines have no scales", file=file, where="scales", expected="refit", found=found)


def check_finished(job: Job) -> None:
    """That finished templates, if the config names any, are as they were. Raises ToolchainError."""
    directory, damage = job.template_directory, finished_damage(job)
    if damage is not None:
        raise ToolchainError(f"the template is not as it was compiled: {damage}", file=directory)


def finished_damage(job: Job) -> str | None:
    """What has changed about finished templates, in one line; None where nothing has, or where there are none."""
    if job.template_directory is None or job.template is None:
        return None
    if job.package is None:
        return template_damage(job.template_directory, job.hashes)
    return job.hashes.damage(job.package.directory, job.template.files)


def confirm_layouts(build: Path, job: Job, layouts: Mapping[str, EngineLayout]) -> dict[str, int]:
    """That the layouts hold on every engine of the very templates; corrected elements of each engine file.

    Raises EngineSetError as `confirm_template` and `confirm_package` do.
    """
    if job.package is None:
        confirming = paths.marker_directory(build, job, job.marker_plan.confirm)
        return confirm_template(paths.template_directory(build, job), dict(layouts), confirming)
    if job.template_weights is None:
        raise InternalError("a vendor directory without its checkpoint")
    return confirm_package(job.package, layouts, job.template_weights)
