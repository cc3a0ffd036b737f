"""Puts an engine set together: everything into a directory beside, the manifest last, one rename."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from layouts.atomic import write_beside
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.engineset.manifest import FORMAT, FileEntry, Manifest, SourceEntry, TemplateEntry, write_manifest
from pipeline.engineset.names import VOCAB_KEEP_FILE, EngineNames
from pipeline.engineset.vendor_config import vendor_files
from pipeline.files import file_sha256, files_below, publish_directory, write_bytes
from pipeline.model import ModelConfig
from pipeline.refit.choose import ScaleMode
from pipeline.tokenizer.errors import TokenizerError
from pipeline.tokenizer.source import source_tokenizer
from pipeline.tokenizer.store import FILES as TOKENIZER_FILES
from pipeline.tokenizer.store import TOKENIZER_FILE, tokenizer_files
from pipeline.tokenizer.tokenizer import Tokenizer
from pipeline.version import TOOL


@dataclass(frozen=True)
class SetParts:
    """What a set is made of.

    name, identity : of the set; the identity is the hash of its inputs
    engines : finished engine files with their reports; linked into the set, so that they are there at any time
    layouts : sidecar files, copied
    names : what the engines are called
    kept : token ids of the head's rows, None for the whole vocabulary
    carried : name in the set -> file that comes from the templates as it is; None where the set gets files of our own instead
    """

    name: str
    identity: str
    engines: Mapping[Path, dict[str, object]]
    layouts: tuple[Path, ...]
    names: EngineNames
    template: TemplateEntry
    scales: ScaleMode
    kept: list[int] | None
    carried: Mapping[str, Path] | None = None


def assemble_set(parts: SetParts, checkpoint: Checkpoint, source: SourceEntry, partial: Path, final: Path) -> None:
    """Make `final` from its parts by way of the directory `partial`, which is made anew.

    A tokenizer that cannot be rebuilt exactly is left out with a warning: the engines are as good with token ids.
    """
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    tokenizer, carried = _tokenizer(checkpoint), parts.carried or {}
    ends = () if tokenizer is None else tokenizer.end_ids
    config = replace(checkpoint.config, eos_token_ids=tuple(sorted({*checkpoint.config.eos_token_ids, *ends})))
    texts = {} if tokenizer is None or set(carried) & set(TOKENIZER_FILES) else tokenizer_files(tokenizer)
    if parts.carried is None:
        texts |= vendor_files(parts.name, config, parts.names, TOKENIZER_FILE if texts else None)
    if parts.kept is not None:
        _warn_of_lost_ends(config, parts.kept)
        texts[VOCAB_KEEP_FILE] = (json.dumps(parts.kept) + "\n").encode()
    for name, content in texts.items():
        write_bytes(partial / name, content)
    for name, file in carried.items():
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        _copy(file, partial / name)
    for layout in parts.layouts:
        write_bytes(partial / layout.name, layout.read_bytes())
    for engine in parts.engines:
        _link_or_copy(engine, partial / engine.name)
    usable = set(TOKENIZER_FILES) <= {*texts, *carried}
    write_manifest(partial, _manifest(parts, config, source, sorted(TOKENIZER_FILES) if usable else [], partial))
    publish_directory(partial, final)


def _warn_of_lost_ends(config: ModelConfig, kept: list[int]) -> None:
    lost = sorted(set(config.eos_token_ids) - set(kept))
    if lost:
        listed = ", ".join(map(str, lost))
        warnings.warn(f"the head does not keep these ids that end a text: {listed}", stacklevel=2)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # a file system without hard links
        _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as data, write_beside(target) as file:
        shutil.copyfileobj(data, file)


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    try:
        return source_tokenizer(checkpoint)
    except TokenizerError as error:
        warnings.warn(f"the set carries no tokenizer: {error}", stacklevel=2)
        return None


def _manifest(
    parts: SetParts, config: ModelConfig, source: SourceEntry, tokenizer: list[str], directory: Path
) -> Manifest:
    files = {
        name: FileEntry((directory / name).stat().st_size, file_sha256(directory / name))
        for name in files_below(directory)
    }
    return Manifest(
        format=FORMAT,
        name=parts.name,
        identity=parts.identity,
        tool=TOOL,
        model=config,
        names=parts.names,
        source=source,
        template=parts.template,
        scales=parts.scales,
        tokenizer=tokenizer,
        engines={path.name: report for path, report in parts.engines.items()},
        files=files,
    )
