"""The tokenizer of an engine set: two files that replace the GGUF's metadata.

`tokenizer.json` is in the `tokenizers` library's own format and holds tokens and merges; `tokenizer_metadata.json` has
the GGUF's other tokenizer keys as they are. Loading puts the metadata together again and builds from it, so that there
is one way to a tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import MissingFileError
from pipeline.files import write_bytes
from pipeline.tokenizer import fields
from pipeline.tokenizer.bpe import MISSING_BYTE
from pipeline.tokenizer.errors import TokenizerError
from pipeline.tokenizer.tokenizer import Tokenizer, tokenizer_from_gguf
from pipeline.tokenizer.vocabulary import PREFIX

TOKENIZER_FILE = "tokenizer.json"
METADATA_FILE = "tokenizer_metadata.json"
FILES = (TOKENIZER_FILE, METADATA_FILE)
FORMAT = 1

_TOKENS, _MERGES, _TYPES, _SCORES = (PREFIX + key for key in ("tokens", "merges", "token_type", "scores"))


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """The two files, name to content. The same tokenizer gives the same bytes."""
    library = json.loads(tokenizer.model.library.to_str())
    # Ours alone, and no row of the embedding has its id.
    if library["model"]["vocab"].pop(MISSING_BYTE, None) is not None:
        library["model"]["unk_token"] = None
    kept = json.dumps(_kept_metadata(tokenizer), ensure_ascii=False, indent=1)
    return {TOKENIZER_FILE: json.dumps(library, ensure_ascii=False).encode(), METADATA_FILE: kept.encode()}


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the two files into an existing folder; each appears complete or not at all."""
    for name, content in tokenizer_files(tokenizer).items():
        write_bytes(folder / name, content)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Read what `save_tokenizer` wrote.

    Raises
    ------
    MissingFileError : one of the files is not there.
    TokenizerError : a file is not what was written.
    """
    library, kept = _read(folder / TOKENIZER_FILE), _read(folder / METADATA_FILE)
    if kept.get("format") != FORMAT or not isinstance(kept.get("keys"), dict):
        raise TokenizerError(
            "of another format", file=folder / METADATA_FILE, expected=FORMAT, found=kept.get("format")
        )
    model = library.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise TokenizerError("has no vocabulary", file=folder / TOKENIZER_FILE, where="model.vocab")
    metadata = dict(kept["keys"])
    metadata[_TOKENS] = _tokens(model["vocab"], fields.required(kept, "vocab_size", int), folder / TOKENIZER_FILE)
    metadata[_MERGES] = _merges(model.get("merges"), folder / TOKENIZER_FILE)
    metadata[_TYPES] = _token_types(kept, len(metadata[_TOKENS]), folder / METADATA_FILE)
    return tokenizer_from_gguf(metadata, folder / METADATA_FILE)


def _kept_metadata(tokenizer: Tokenizer) -> dict[str, Any]:
    """Everything but tokens and merges; token types are written only where they differ from normal."""
    source = tokenizer.metadata
    keys = {key: _plain(source[key]) for key in source if key.startswith("tokenizer.") or key == "general.name"}
    types = fields.array(source, _TYPES) or []
    for key in (_TOKENS, _MERGES, _TYPES):
        keys.pop(key, None)
    return {
        "format": FORMAT,
        "vocab_size": tokenizer.vocab_size,
        "token_types": {str(i): int(kind) for i, kind in enumerate(types) if kind != 1},
        "keys": keys,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (str, bool, int, float)):
        return value
    return list(value)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise MissingFileError("no such file", file=path) from None
    except ValueError as error:
        raise TokenizerError(f"not JSON: {error}", file=path) from None
    if not isinstance(value, dict):
        raise TokenizerError("not a JSON object", file=path)
    return value


def _tokens(vocab: Mapping[str, Any], count: int, path: Path) -> list[str]:
    by_id = {i: token for token, i in vocab.items()}
    if len(by_id) != count:
        raise TokenizerError("number of tokens", file=path, where="model.vocab", expected=count, found=len(by_id))
    for i in range(count):
        if i not in by_id:
            raise TokenizerError("token is missing", file=path, where=f"model.vocab, id {i}")
    return [by_id[i] for i in range(count)]


def _merges(pairs: Any, path: Path) -> list[str]:
    lines = []
    for i, pair in enumerate(pairs or ()):
        if not isinstance(pair, list) or len(pair) != 2:
            raise TokenizerError("not a pair of tokens", file=path, where=f"model.merges[{i}]")
        lines.append(f"{pair[0]} {pair[1]}")
    return lines


def _token_types(kept: Mapping[str, Any], count: int, path: Path) -> list[int]:
    types = [1] * count
    by_id = kept.get("token_types")
    for i, kind in by_id.items() if isinstance(by_id, dict) else ():
        if not i.isdecimal() or int(i) >= count or not isinstance(kind, int):
            raise TokenizerError("not the type of a token", file=path, where=f"token_types.{i}", found=kind)
        types[int(i)] = kind
    return types
