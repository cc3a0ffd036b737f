"""What a set was made of, as the control needs to know it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pipeline.checkpoint.kept import read_ids
from pipeline.checkpoint.open import source_files
from pipeline.engineset.manifest import Manifest
from pipeline.engineset.sources import adapter_of, source_of
from pipeline.errors import MismatchError
from pipeline.evaluate.control import Control
from pipeline.evaluate.control_adapter import Adapter, read_adapter
from pipeline.evaluate.control_quantize import Quantization

ENGINE_SCALES = "engine"


@dataclass(frozen=True)
class Recipe:
    """A GGUF and what became of it.

    gguf : the source
    how : what the engines' weights are
    adapter, adapter_scale : a LoRA adapter that was merged, "" for none
    kept : token ids whose rows the head has, in their order; empty for all
    base : the GGUF that the templates were compiled from, where their own scales are kept, "" otherwise
    exact : every stored weight is known: false where an engine keeps the corrections of its compiler
    """

    gguf: Path
    how: Quantization = field(default_factory=Quantization)
    adapter: str = ""
    adapter_scale: float = 1.0
    kept: tuple[int, ...] = ()
    base: str = ""
    exact: bool = True

    def change(self) -> Adapter | None:
        """The adapter. Raises CheckpointError for one that the control does not know."""
        return read_adapter(Path(self.adapter), self.adapter_scale, self.gguf) if self.adapter else None

    def control(self) -> Control:
        """Raises what `Control` and `read_adapter` raise."""
        return Control(self.gguf, self.how, change=self.change(), kept=self.kept or None, base=self.base or None)


@dataclass(frozen=True)
class Places:
    """Where files are, if not where the manifest says: the source, the adapter; and what the templates were compiled from."""

    gguf: Path | None = None
    adapter: Path | None = None
    base: Path | None = None


def set_recipe(directory: Path, manifest: Manifest, places: Places) -> Recipe:
    """The recipe that a manifest tells.

    Raises
    ------
    MismatchError : a source that is no GGUF in one file; scales of the engines themselves, and no `base`
    MissingFileError, VerifyError : a file that is gone or has changed
    """
    source, options = one_gguf(source_of(directory, manifest, places.gguf)), manifest.template.options
    merged, kept, own_scales = manifest.source.adapter, manifest.source.vocab_keep, manifest.scales == ENGINE_SCALES
    if merged is None and places.adapter is not None:
        raise MismatchError("no adapter was merged into the set", file=places.adapter, where=str(directory))
    if not own_scales and places.base is not None:
        raise MismatchError("the set does not keep the scales of its engines", file=places.base, where=str(directory))
    if own_scales and places.base is None:
        reason = "keeps the scales of its engines: name the GGUF that they were compiled from with --base"
        raise MismatchError(reason, file=directory)
    return Recipe(
        source,
        Quantization.of(options, manifest.scales),
        adapter="" if merged is None else str(adapter_of(directory, manifest, places.adapter)),
        adapter_scale=1.0 if merged is None else merged.scale,
        kept=tuple(read_ids(directory / kept, manifest.model.vocab_size)) if kept else (),
        base=str(places.base) if own_scales else "",
        exact=not (own_scales and options["corrections"]),
    )


def one_gguf(source: Path) -> Path:
    """Raises MismatchError for a directory and for a split GGUF."""
    if source.is_dir():
        raise MismatchError("llama.cpp compares GGUF files only, name one with --gguf", file=source)
    if len(source_files(source)) > 1:
        reason = "a split GGUF cannot be evaluated, name the same model in one file with --gguf"
        raise MismatchError(reason, file=source)
    return source
