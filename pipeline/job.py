"""What a config, a source and a build directory mean together: the inputs of every task, and the names of their outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from pipeline.checkpoint.open import open_checkpoint, source_files
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.config import SetConfig, find_source, load_config
from pipeline.errors import ConfigError, MismatchError
from pipeline.hashes import HashCache, digest
from pipeline.model import ModelConfig
from pipeline.toolchain.compilers import find_compiler
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.templates import Template, read_template
from pipeline.version import OUTPUT_FORMAT


@dataclass(frozen=True)
class Job:
    """One engine set to be built.

    `template_directory` is given where the config names finished templates, otherwise the build directory has them.
    """

    config: SetConfig
    source: Path
    template_directory: Path | None
    hashes: HashCache

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The source; headers are read once.

        Raises MismatchError when its architecture is not the config's.
        """
        checkpoint = open_checkpoint(self.source)
        found = checkpoint.config.architecture
        if found != self.config.architecture:
            raise MismatchError(
                "the source is of another architecture than the config",
                file=self.source,
                where="architecture",
                expected=self.config.architecture,
                found=found,
            )
        return checkpoint

    @cached_property
    def template(self) -> Template | None:
        """Description of the finished templates, None where they are to be compiled."""
        return None if self.template_directory is None else read_template(self.template_directory)

    @property
    def toolchain(self) -> str:
        """Name of the compiler of the templates and of the marker builds."""
        return self.config.templates.toolchain if self.template is None else self.template.toolchain

    @property
    def options(self) -> CompileOptions:
        return self.config.templates.options() if self.template is None else self.template.options

    @property
    def template_model(self) -> ModelConfig:
        """Dimensions that the templates are, or will be, compiled for."""
        return self.checkpoint.config if self.template is None else self.template.model

    @cached_property
    def source_hashes(self) -> dict[str, str]:
        """File name -> SHA-256."""
        return {path.name: self.hashes.sha256(path) for path in source_files(self.source)}

    @cached_property
    def layout_key(self) -> str:
        """Names layouts: the same for every source of this shape, and for every number of layers."""
        shape = self.template_model.single().shape_key()
        tied = self.template_model.tie_word_embeddings
        return digest(
            [
                OUTPUT_FORMAT,
                self.toolchain,
                find_compiler(self.toolchain).version,
                msgspec.to_builtins(self.options),
                shape,
                tied,
            ]
        )[:16]

    @cached_property
    def template_key(self) -> str:
        """Names the template set."""
        if self.template is not None:
            return digest(msgspec.to_builtins(self.template))[:16]
        return digest([self.layout_key, self.template_model.num_hidden_layers])[:16]

    @cached_property
    def identity(self) -> str:
        """Names the engine set: the hash of all its inputs."""
        return digest([OUTPUT_FORMAT, self.config.name, self.template_key, self.source_hashes])[:16]


def resolve_job(config_path: Path, source: Path | None, hash_database: Path) -> Job:
    """Read a config and find what it names; nothing of the source is read yet.

    Raises ConfigError, MissingFileError.
    """
    for path in (config_path, source, hash_database):
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise ConfigError("the path is not UTF-8", file=repr(str(path))) from None
    config = load_config(config_path)
    directory = None if config.templates.dir is None else (config_path.parent / config.templates.dir).absolute()
    return Job(config, find_source(config_path, config, source), directory, HashCache(hash_database))
