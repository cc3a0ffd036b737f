"""Everything that stands between a job and its engines, once the layouts are there: before a byte is written."""

from __future__ import annotations

from collections.abc import Mapping

from layouts.stored import EngineLayout
from pipeline.engineset.package_vocabulary import vocabulary_faults
from pipeline.errors import ConfigError
from pipeline.job import Job
from pipeline.refit.plan import check_plan
from pipeline.refit.refused import PlanRefusedError
from pipeline.toolchain.template_decode import has_integers


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
