"""A finished vendor directory: engines, and the `config.json` that names them (docs/vendor-packages.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from pipeline.engineset.names import CONFIG_FILE, EMBEDDING_FILE, LAYOUT_FILES, MANIFEST_FILE, EngineNames
from pipeline.errors import MissingFileError, ToolchainError
from pipeline.files import files_below
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, LAYER, POST_ENGINE
from pipeline.toolchain.template_file import TEMPLATE_FILE

_PREFILL = re.compile(r"_p(\d{1,6})_")
MAX_LAYERS = 1024
MAX_BYTES = 16 << 20


class _Fields(msgspec.Struct, frozen=True):
    """The keys of a vendor's `config.json` that we go by; the others are the runtime's."""

    template_filename_axmodel: str
    axmodel_num: int
    filename_post_axmodel: str
    tokens_embed_num: int
    tokens_embed_size: int
    filename_tokens_embed: str = EMBEDDING_FILE
    url_tokenizer_model: str = ""
    filename_vocab_keep: str = ""


@dataclass(frozen=True)
class Package:
    """What a vendor directory says of itself.

    names : of the engines
    layers, vocabulary, hidden : numbers of `config.json`
    prefill : tokens of a prefill call as the names have it, None where they do not say
    tokenizer, vocab_keep : files of the directory, "" for none
    fields : all of `config.json`
    """

    directory: Path
    names: EngineNames
    layers: int
    vocabulary: int
    hidden: int
    prefill: int | None
    tokenizer: str
    vocab_keep: str
    fields: dict[str, Any]

    @property
    def config_file(self) -> Path:
        return self.directory / CONFIG_FILE

    def engines(self) -> Iterator[tuple[str, int, Path]]:
        """Kind, layer and file of every engine: layers, post, embedding."""
        for layer in range(self.layers):
            yield LAYER, layer, self.directory / self.names.file(LAYER, layer)
        for kind in (POST_ENGINE, EMBEDDING_ENGINE):
            yield kind, 0, self.directory / self.names.file(kind)

    def carried(self) -> dict[str, Path]:
        """Name -> file of all that goes into a set as it is: tokenizer, configuration, pictures, engines of other parts."""
        ours = {path.relative_to(self.directory).as_posix() for *_, path in self.engines()} | set(LAYOUT_FILES)
        return {
            name: self.directory / name
            for name in files_below(self.directory)
            if name not in ours and not any(part.startswith(".") for part in PurePosixPath(name).parts)
            if (self.directory / name).is_file()
        }


def is_package(directory: Path) -> bool:
    """Whether a directory is a vendor's and not one that this tool has written."""
    ours = (TEMPLATE_FILE, MANIFEST_FILE)
    return (directory / CONFIG_FILE).is_file() and not any((directory / name).is_file() for name in ours)


def read_package(directory: Path) -> Package:
    """Read the `config.json` of a vendor directory; no engine is opened.

    Raises
    ------
    MissingFileError : no `config.json`
    ToolchainError : one that lacks a key, or names files that are not in the directory
    """
    path = directory / CONFIG_FILE
    if not path.is_file():
        raise MissingFileError("not a vendor directory", file=path)
    if path.stat().st_size > MAX_BYTES:
        raise ToolchainError("too large for a configuration", file=path, expected=MAX_BYTES, found=path.stat().st_size)
    try:
        raw = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        fields = msgspec.convert(raw, _Fields)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ToolchainError(f"not a vendor's configuration: {error}", file=path) from None
    _check(path, fields)
    pattern, prefill = fields.template_filename_axmodel, _PREFILL.search(fields.template_filename_axmodel)
    return Package(
        directory,
        EngineNames(pattern, fields.filename_post_axmodel, fields.filename_tokens_embed),
        fields.axmodel_num,
        fields.tokens_embed_num,
        fields.tokens_embed_size,
        int(prefill[1]) if prefill else None,
        _inside(fields.url_tokenizer_model),
        fields.filename_vocab_keep,
        raw,
    )


def _check(path: Path, fields: _Fields) -> None:
    pattern = fields.template_filename_axmodel
    if pattern.count("%d") != 1 or pattern.count("%") != 1:
        where = "template_filename_axmodel"
        raise ToolchainError("not a name of layers", file=path, where=where, expected="one %d", found=pattern)
    named = ("template_filename_axmodel", "filename_post_axmodel", "filename_tokens_embed", "filename_vocab_keep")
    for key in named:
        name = str(getattr(fields, key))
        if name and _inside(name) != name:
            raise ToolchainError("not a file of the directory", file=path, where=key, found=name)
    for key, most in (("axmodel_num", MAX_LAYERS), ("tokens_embed_num", 1 << 28), ("tokens_embed_size", 1 << 20)):
        if not 1 <= getattr(fields, key) <= most:
            found = getattr(fields, key)
            raise ToolchainError("out of range", file=path, where=key, expected=f"1 to {most}", found=found)


def _inside(name: str) -> str:
    """The name where it can be of a file in the directory; "" for an address or a path that leads out of it."""
    path = PurePosixPath(name)
    return "" if not name or path.is_absolute() or ".." in path.parts or "://" in name or "\0" in name else name
