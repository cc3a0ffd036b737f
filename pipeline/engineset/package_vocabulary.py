"""Whether the tokenizer of a vendor directory numbers tokens as the source does: a set carries the vendor's file as it is."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.checkpoint.wrapped import innermost
from pipeline.tokenizer.bpe import BYTE_OF
from pipeline.tokenizer.vocabulary import PREFIX
from pipeline.toolchain.template_package import Package

TOKENS_KEY = PREFIX + "tokens"
HF_TOKENIZER = "tokenizer.json"
LISTED = 5
# the vendor's text form: a line "430 <kind>", one of counts, one of ids, one that begins with the number of tokens, tokens
_MAGIC, _PIECES, _BYTES, _TEXTS = "430", "0", "1", "3"
_ENCODED = "b64:"
# what converters write for ids without a token
_FILLERS = (b"<unk>", b"")
_PADDING = "[PAD"
_MAX_BYTES = 256 << 20

Tokens = dict[int, bytes]


def vocabulary_faults(package: Package, checkpoint: Checkpoint) -> Iterator[str]:
    """One line for each thing about the vocabulary that differs between a vendor directory and a source."""
    size = checkpoint.config.vocab_size
    if package.vocabulary != size:
        yield f"{package.config_file}: tokens_embed_num: the package has {package.vocabulary}, the source has {size}"
    known, file = package_tokens(package)
    given = source_tokens(checkpoint)
    if not known or not given:
        return
    beyond = [i for i in known if i >= size and known[i] not in _FILLERS]
    if beyond:
        yield f"{file}: token ids go up to {max(beyond)}, the source has {size} tokens"
    wrong = [i for i, text in given.items() if i in known and known[i] not in (*_forms(text), *_FILLERS)]
    for i in wrong[:LISTED]:
        yield f"{file}: token {i}: the package has {known[i].decode('utf-8', 'replace')!r}, the source has {given[i]!r}"
    if len(wrong) > LISTED:
        yield f"{file}: {len(wrong)} tokens are others than the source's in all"


def source_tokens(checkpoint: Checkpoint) -> dict[int, str]:
    """Token id -> text, as far as the source says: a GGUF's metadata, or `tokenizer.json` beside a Hugging Face config."""
    source = innermost(checkpoint)
    if isinstance(source, GgufCheckpoint):
        tokens = source.files[0].metadata.get(TOKENS_KEY, ())
        return {i: str(text) for i, text in enumerate(tokens) if not str(text).startswith(_PADDING)}
    file = source.path / HF_TOKENIZER
    return {i: text.decode() for i, text in _json_tokens(file).items()} if file.is_file() else {}


def package_tokens(package: Package) -> tuple[Tokens, Path]:
    """Token id -> bytes of the package's tokenizer, none of one that is in no form known here; its file."""
    file = package.directory / (package.tokenizer or HF_TOKENIZER)
    if file.is_dir():
        file = file / HF_TOKENIZER
    if not file.is_file() or file.stat().st_size > _MAX_BYTES:
        return {}, file
    return (_json_tokens(file) if file.suffix == ".json" else _text_tokens(file)), file


def _json_tokens(file: Path) -> Tokens:
    """Of the `tokenizers` library's format: the model's vocabulary, then the tokens that were added."""
    try:
        content = json.loads(file.read_bytes())
        vocab, added = content["model"]["vocab"], content.get("added_tokens") or []
        texts: dict[Any, Any] = {i: text for text, i in vocab.items()} if isinstance(vocab, dict) else {}
        if isinstance(vocab, list):
            texts = {i: entry[0] for i, entry in enumerate(vocab)}
        texts |= {token["id"]: token["content"] for token in added}
        return {int(i): str(text).encode() for i, text in texts.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return {}


def _text_tokens(file: Path) -> Tokens:
    with file.open("rb") as lines:
        head = [next(lines, b"").split() for _ in range(4)]
        if not (head[0][:1] == [_MAGIC.encode()] and len(head[0]) > 1 and head[3] and head[3][0].isdigit()):
            return {}
        kind, count = head[0][1].decode("ascii", "replace"), int(head[3][0])
        try:
            return {i: _line_token(kind, line.rstrip(b"\r\n")) for i, line in enumerate(islice(lines, count))}
        except (ValueError, binascii.Error, LookupError):
            return {}


def _line_token(kind: str, line: bytes) -> bytes:
    if kind == _PIECES:
        return base64.b64decode(line.split(b" ")[0], validate=True)
    if kind == _BYTES:
        return base64.b64decode(line, validate=True)
    if kind != _TEXTS:
        raise LookupError(kind)
    encoded = _ENCODED.encode()
    return base64.b64decode(line.removeprefix(encoded), validate=True) if line.startswith(encoded) else line


def _forms(text: str) -> tuple[bytes, ...]:
    """What a token is called in one form or another: as it stands, with spaces for word marks, as the bytes it stands for."""
    plain = bytes(BYTE_OF[c] for c in text) if all(c in BYTE_OF for c in text) else text.encode()
    return text.encode(), text.replace("\u2581", " ").encode(), plain
