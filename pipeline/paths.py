"""Every path that a build reads or writes below the build directory."""

from __future__ import annotations

from pathlib import Path

from pipeline.engineset.names import AXL4_FILE, layout_file
from pipeline.hashes import digest
from pipeline.job import Job
from pipeline.refit.plan import all_plans
from pipeline.toolchain.kinds import KINDS


def hash_database(build: Path) -> Path:
    return build / "hashes.sqlite"


def marker_directory(build: Path, job: Job, marker: int) -> Path:
    """Engines of a marker build; the confirming one is the last."""
    return build / "markers" / job.layout_key / str(marker)


def marker_engine(build: Path, job: Job, marker: int, kind: str) -> Path:
    """One engine of a marker build."""
    return marker_directory(build, job, marker) / job.names.file(kind)


def layout_path(build: Path, job: Job, kind: str) -> Path:
    return build / "layouts" / job.layout_key / layout_file(kind)


def seal_path(path: Path) -> Path:
    """The seal of a cached file: its hash, written after it."""
    return path.with_name(f"{path.name}.seal.json")


def axl4_path(build: Path, job: Job) -> Path:
    return build / "sidecars" / job.template_key / AXL4_FILE


def template_directory(build: Path, job: Job) -> Path:
    """The template engines: of the build directory, or those that the config names."""
    return job.template_directory or build / "templates" / job.template_key


def template_engine(build: Path, job: Job, kind: str, layer: int) -> Path:
    return template_directory(build, job) / job.names.file(kind, layer)


def walk_path(build: Path, job: Job) -> Path:
    return build / "walks" / f"{job.template_key}.json"


def confirmed_path(build: Path, job: Job) -> Path:
    return build / "confirmed" / f"{job.template_key}.json"


def confirmed_files(build: Path, job: Job) -> list[Path]:
    """What a confirmation relies on: the template's engines and the layouts."""
    engines = [template_engine(build, job, plan.kind, plan.layer) for plan in all_plans(job.template_model)]
    return [*engines, *(layout_path(build, job, kind) for kind in KINDS)]


def parts_directory(build: Path, job: Job) -> Path:
    """What waits for a set to be assembled; removed when it is."""
    return build / "parts" / job.identity


def lock_path(build: Path, output: Path) -> Path:
    """Held by the process that makes `output`, however it came to that path."""
    return build / "locks" / f"{digest(str(output.absolute().resolve()))[:32]}.lock"


def parts_lock(build: Path, job: Job) -> Path:
    """Held, shared, by every process that works on the parts of a set."""
    return build / "locks" / f"{job.identity}.parts"


def part_path(build: Path, job: Job, kind: str, layer: int) -> Path:
    """A patched engine that waits for its set."""
    return parts_directory(build, job) / job.names.file(kind, layer)


def report_path(build: Path, job: Job, kind: str, layer: int) -> Path:
    """The report of a patched engine, written after it."""
    part = part_path(build, job, kind, layer)
    return part.with_name(f"{part.name}.json")


def set_directory(build: Path, job: Job) -> Path:
    return build / "sets" / f"{job.config.name}-{job.identity}"


def set_link(build: Path, job: Job) -> Path:
    """A link under the plain name to the set that was built last."""
    return build / "sets" / job.config.name


def plan_path(build: Path, job: Job) -> Path:
    """Written when a source has been checked against its templates."""
    return parts_directory(build, job) / "plan.json"
