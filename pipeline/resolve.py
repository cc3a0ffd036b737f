"""From a config file to a job: what it names is found, and what contradicts itself is refused."""

from __future__ import annotations

from pathlib import Path

from pipeline.config import find_source, load_config
from pipeline.engineset.sources import Adapter
from pipeline.errors import ConfigError, MissingFileError, ToolchainError
from pipeline.hashes import HashCache
from pipeline.job import Job
from pipeline.refit.choose import ENGINE
from pipeline.toolchain.options import INTEGERS
from pipeline.toolchain.template_file import TEMPLATE_FILE, read_template

JOINED = "sources"


def resolve_job(config_path: Path, source: Path | None, hash_database: Path, adapter: Adapter | None = None) -> Job:
    """Read a config and find what it names; nothing of the source is read yet.

    Parameters
    ----------
    source : instead of the config's
    hash_database : sources that packages carry in pieces are joined in a folder beside it

    Raises ConfigError, MissingFileError, ToolchainError.
    """
    for path in (config_path, source, hash_database, adapter.path if adapter else None):
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise ConfigError("the path is not UTF-8", file=repr(str(path))) from None
    config = load_config(config_path)
    beside, templates, joined = config_path.parent, config.templates, hash_database.with_name(JOINED)
    if adapter is not None and not adapter.path.exists():
        raise MissingFileError("no such adapter", file=adapter.path)
    origin = templates.checkpoint
    job = Job(
        config=config,
        source=find_source(config_path, config.source, source, joined),
        adapter=adapter,
        kept_file=None if config.vocab_keep is None else beside / config.vocab_keep,
        template_directory=None if templates.dir is None else (beside / templates.dir).absolute(),
        template_source=None if origin is None else find_source(config_path, origin, None, joined),
        hashes=HashCache(hash_database),
    )
    _check_package(config_path, job)
    if config.scales != "refit" and job.package is None:
        _check_scales(config_path, job)
    return job


def _check_package(config_path: Path, job: Job) -> None:
    """A vendor directory needs its checkpoint, and finished templates of our own name it themselves."""
    directory, named, where = job.template_directory, job.template_source is not None, "templates.checkpoint"
    if job.package is not None and not named:
        raise ConfigError(
            "a vendor directory needs the checkpoint that it was built from", file=config_path, where=where
        )
    if directory is not None and job.package is None and named:
        read_template(directory)
        reason = f"`dir` goes alone: its {TEMPLATE_FILE} says what the engines were compiled from"
        raise ConfigError(reason, file=config_path, where=where)


def _check_scales(config_path: Path, job: Job) -> None:
    """Engines without scales, and templates whose own scales mean nothing, are refused."""
    options, template, scales = job.options, job.template, job.config.scales
    if not {options.weight_type, options.post_type} & set(INTEGERS):
        raise ConfigError(
            "float engines have no scales", file=config_path, where="scales", expected="refit", found=scales
        )
    if scales != ENGINE or template is None or job.template_directory is None:
        return
    file = job.template_directory / TEMPLATE_FILE
    if template.seed is not None:
        raise ToolchainError("the template holds noise, whose scales cannot be kept", file=file, where="seed")
    if template.checkpoint is None:
        raise ToolchainError("what the template was compiled from is not known", file=file, where="checkpoint")
