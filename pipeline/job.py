"""What a config, a source and a build directory mean together: the inputs of every task, and the names of their outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from pipeline.checkpoint.kept import read_ids
from pipeline.checkpoint.lora import adapter_files
from pipeline.checkpoint.open import open_checkpoint, source_files
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.config import SetConfig
from pipeline.engineset.names import EngineNames, engine_names
from pipeline.engineset.sources import Adapter, open_weights
from pipeline.errors import ConfigError, InternalError, MismatchError
from pipeline.hashes import HashCache, digest
from pipeline.model import ModelConfig
from pipeline.refit.plan import check_dimensions
from pipeline.toolchain.compilers import find_compiler
from pipeline.toolchain.local_tool import LocalTool
from pipeline.toolchain.markers import MarkerPlan, plan_markers
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.template_describe import describe_package
from pipeline.toolchain.template_file import CompiledFrom, Template, read_template, template_weights
from pipeline.toolchain.template_package import Package, is_package, read_package
from pipeline.version import OUTPUT_FORMAT


@dataclass(frozen=True)
class Job:
    """One engine set to be built.

    source : GGUF or Hugging Face directory
    adapter : what is merged into it
    kept_file : the token ids whose rows the head keeps
    template_directory : given where the config names finished templates, otherwise the build directory has them
    template_source : the checkpoint that templates are compiled from instead of noise, or that a vendor directory was built from
    """

    config: SetConfig
    source: Path
    adapter: Adapter | None
    kept_file: Path | None
    template_directory: Path | None
    template_source: Path | None
    hashes: HashCache

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The source with its adapter merged and its head trimmed; headers are read once.

        Raises MismatchError when its architecture is not the config's.
        """
        checkpoint = open_weights(self.source, self.adapter, self.kept)
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
    def kept(self) -> list[int] | None:
        """Token ids whose rows the head keeps, None for all."""
        if self.kept_file is None:
            return self._package_kept
        return read_ids(self.kept_file, open_checkpoint(self.source).config.vocab_size)

    @cached_property
    def package(self) -> Package | None:
        """The vendor directory that the config names as templates, None for templates of any other kind."""
        directory = self.template_directory
        return read_package(directory) if directory is not None and is_package(directory) else None

    @cached_property
    def _package_kept(self) -> list[int] | None:
        """Token ids whose rows the head of a vendor directory keeps."""
        if self.package is None or not self.package.vocab_keep:
            return None
        return read_ids(self.package.directory / self.package.vocab_keep, self.package.vocabulary)

    @cached_property
    def template(self) -> Template | None:
        """Description of the finished templates, None where they are to be compiled."""
        if self.template_directory is None:
            return None
        if self.package is None:
            return read_template(self.template_directory)
        weights, origin = self.template_weights, self.template_origin
        if weights is None or origin is None:
            raise InternalError("a vendor directory without its checkpoint")
        return describe_package(self.package, weights, origin, self.hashes)

    @cached_property
    def names(self) -> EngineNames:
        """What the engines of template and set are called."""
        return self.package.names if self.package else engine_names(self.template_model, self.options.prefill_len)

    @property
    def toolchain(self) -> str:
        """Name of the compiler of the templates and of the marker builds."""
        return self.config.templates.toolchain if self.template is None else self.template.toolchain

    @property
    def tool(self) -> LocalTool:
        """How that compiler is called, if it is not ours."""
        return self.config.templates.tool()

    @property
    def options(self) -> CompileOptions:
        return self.config.templates.options() if self.template is None else self.template.options

    @cached_property
    def template_model(self) -> ModelConfig:
        """Dimensions that the templates are, or will be, compiled for; the first thing that a build asks for.

        Raises PlanRefusedError where the source has others, and whatever is wrong with source, adapter or kept ids.
        """
        model = self.compiled_model
        if self.template is not None:
            self._check_kept(model.kept_rows)
        check_dimensions(model, self.checkpoint)
        return model

    @property
    def compiled_model(self) -> ModelConfig:
        """As `template_model`, whatever the source has."""
        return (self.template_weights or self.checkpoint).config if self.template is None else self.template.model

    def _check_kept(self, rows: int) -> None:
        """Finished templates have a head of so many rows; other ids may take their places, more or fewer cannot."""
        given = self.checkpoint.config.kept_rows
        if rows == given and (self.package is None or self.kept == self._package_kept):
            return
        if not rows:
            reason = (
                "the finished templates have a head of the whole vocabulary: leave vocab_keep out, or templates.dir"
            )
        elif not given:
            reason = "the head of the finished templates keeps a part of the vocabulary: name its token ids"
        else:
            reason = "the head of the finished templates keeps other token ids: name theirs, or leave templates.dir out"
        file, every = self.kept_file or self.template_directory, self.checkpoint.config.vocab_size
        expected, found = (f"{count or every} rows" for count in (rows, given))
        raise ConfigError(reason, file=file, where="vocab_keep", expected=expected, found=found)

    @cached_property
    def template_weights(self) -> Checkpoint | None:
        """What the templates are to be compiled from or a vendor directory was built from, None for noise and for others."""
        return None if self.template_source is None else open_weights(self.template_source, kept=self._template_kept)

    @property
    def _template_kept(self) -> list[int] | None:
        return self.kept if self.package is None else self._package_kept

    def check_finished_weights(self) -> None:
        """Whether the weights of finished templates can be read, once; raises as `template_file.template_weights`."""
        _ = self._finished_weights

    @cached_property
    def _finished_weights(self) -> Checkpoint | None:
        if self.template_directory is None or self.package is not None:
            return self.template_weights
        return template_weights(self.template_directory)

    @cached_property
    def source_hashes(self) -> dict[str, str]:
        """File name -> SHA-256."""
        return self._hashes(source_files(self.source))

    @cached_property
    def adapter_hashes(self) -> dict[str, str]:
        """File name of the adapter -> SHA-256."""
        return {} if self.adapter is None else self._hashes(adapter_files(self.adapter.path))

    @cached_property
    def template_origin(self) -> CompiledFrom | None:
        """The checkpoint that the templates are to be compiled from or a vendor directory was built from, None for noise."""
        if self.template_source is None:
            return None
        files = self._hashes(source_files(self.template_source))
        return CompiledFrom(str(self.template_source), files, tuple(self._template_kept or ()))

    @cached_property
    def marker_plan(self) -> MarkerPlan:
        """The marker builds that layouts are decoded from."""
        return plan_markers(self.template_model, self.options.weight_type, self.options.post_type)

    @cached_property
    def layout_key(self) -> str:
        """Names layouts: the same for every source of this shape, and for every number of layers.

        Those of a vendor directory are named by its engines and the checkpoint that it was built from.
        """
        if self.package is not None and self.template is not None:
            engines = {name: self.template.files[name] for name in (path.name for *_, path in self.package.engines())}
            return digest([OUTPUT_FORMAT, engines, msgspec.to_builtins(self.template.checkpoint)["files"]])[:16]
        version = find_compiler(self.toolchain, self.tool).version
        compiler = [self.toolchain, version, msgspec.to_builtins(self.options)]
        return digest([OUTPUT_FORMAT, compiler, self.template_model.single().shape_key()])[:16]

    @cached_property
    def template_key(self) -> str:
        """Names the template set."""
        if self.template is not None:
            return digest(self.template.name_parts())[:16]
        model, origin = self.template_model, self.template_origin
        weights = None if origin is None else [origin.files, origin.kept]
        return digest([self.layout_key, model.shape_key(), model.tie_word_embeddings, weights])[:16]

    @cached_property
    def identity(self) -> str:
        """Names the engine set: the hash of all its inputs."""
        adapter = None if self.adapter is None else [self.adapter_hashes, self.adapter.scale]
        made_of = [self.source_hashes, adapter, self.kept, self.config.scales]
        return digest([OUTPUT_FORMAT, self.config.name, self.template_key, *made_of])[:16]

    def changed_sources(self) -> list[Path]:
        """Source or adapter, where its files are not those that the job was named by."""
        changed = [] if self._hashes(source_files(self.source)) == self.source_hashes else [self.source]
        if self.adapter is not None and self._hashes(adapter_files(self.adapter.path)) != self.adapter_hashes:
            changed.append(self.adapter.path)
        return changed

    def _hashes(self, files: list[Path]) -> dict[str, str]:
        return {path.name: self.hashes.sha256(path) for path in files}
