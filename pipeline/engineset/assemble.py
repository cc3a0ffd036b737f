"""Puts an engine set together: everything into a directory beside, the manifest last, one rename."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.checkpoint.protocol import Checkpoint
from pipeline.engineset.manifest import FORMAT, FileEntry, Manifest, SourceEntry, TemplateEntry, write_manifest
from pipeline.engineset.vendor_config import vendor_files
from pipeline.files import file_sha256, publish_directory, write_bytes
from pipeline.model import ModelConfig
from pipeline.tokenizer.source import source_tokenizer
from pipeline.tokenizer.store import FILES as TOKENIZER_FILES
from pipeline.tokenizer.store import TOKENIZER_FILE, tokenizer_files
from pipeline.version import TOOL


@dataclass(frozen=True)
class SetParts:
    """What a set is made of.

    name, identity : of the set; the identity is the hash of its inputs
    engines : finished engine files, moved into the set; with the report of each
    layouts : sidecar files, copied
    """

    name: str
    identity: str
    engines: Mapping[Path, dict[str, object]]
    layouts: tuple[Path, ...]
    prefill_len: int
    template: TemplateEntry


def assemble_set(parts: SetParts, checkpoint: Checkpoint, source: SourceEntry, partial: Path, final: Path) -> None:
    """Make `final` from its parts by way of the directory `partial`, which is made anew.

    Raises
    ------
    EngineSetError : a tokenizer that cannot be carried over; `final` is then not there.
    """
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    tokenizer = source_tokenizer(checkpoint)
    texts = {} if tokenizer is None else tokenizer_files(tokenizer)
    ends = () if tokenizer is None else tokenizer.end_ids
    config = replace(checkpoint.config, eos_token_ids=tuple(sorted({*checkpoint.config.eos_token_ids, *ends})))
    texts |= vendor_files(parts.name, config, parts.prefill_len, TOKENIZER_FILE if texts else None)
    for name, content in texts.items():
        write_bytes(partial / name, content)
    for layout in parts.layouts:
        write_bytes(partial / layout.name, layout.read_bytes())
    for engine in parts.engines:
        engine.replace(partial / engine.name)
    write_manifest(partial, _manifest(parts, config, source, sorted(set(texts) & set(TOKENIZER_FILES)), partial))
    publish_directory(partial, final)


def _manifest(
    parts: SetParts, config: ModelConfig, source: SourceEntry, tokenizer: list[str], directory: Path
) -> Manifest:
    files = {
        path.name: FileEntry(path.stat().st_size, file_sha256(path))
        for path in sorted(directory.iterdir(), key=lambda path: path.name)
    }
    return Manifest(
        format=FORMAT,
        name=parts.name,
        identity=parts.identity,
        tool=TOOL,
        model=config,
        source=source,
        template=parts.template,
        tokenizer=tokenizer,
        engines={path.name: report for path, report in parts.engines.items()},
        files=files,
    )
