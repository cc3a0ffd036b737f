"""An engine set's two files carry the whole tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from pipeline.errors import EngineSetError, MissingFileError
from pipeline.tokenizer.chat import render_chat
from pipeline.tokenizer.store import (
    FILES,
    METADATA_FILE,
    TOKENIZER_FILE,
    load_tokenizer,
    save_tokenizer,
    tokenizer_files,
)
from pipeline.tokenizer.tokenizer import CHAT_TEMPLATE, Tokenizer, tokenizer_from_gguf
from tests.helpers.text_corpus import CORPUS, PLAIN
from tests.helpers.tokenizer_gguf import bpe_vocabulary, prefixed, sentencepiece_vocabulary, trained_bpe, with_tokens


def _bpe() -> Tokenizer:
    vocabulary = with_tokens(bpe_vocabulary(*trained_bpe(PLAIN, 600)), ["<|im_start|>", "<|im_end|>"], 3)
    vocabulary |= {"bos_token_id": 600, "eos_token_id": 601, "add_bos_token": True, CHAT_TEMPLATE: "{{ bos_token }}é"}
    return tokenizer_from_gguf(prefixed(with_tokens(vocabulary, ["<think>"], 4)) | {"general.name": "n"})


def _few_bytes() -> Tokenizer:
    return tokenizer_from_gguf(prefixed(bpe_vocabulary(["a", "b", "ab"], ["a b"])))


def _spm() -> Tokenizer:
    metadata = prefixed(with_tokens(sentencepiece_vocabulary(PLAIN, 500, 0.1), ["<|im_end|>"], 3))
    metadata["tokenizer.ggml.scores"] = np.array(metadata["tokenizer.ggml.scores"], np.float32)
    return tokenizer_from_gguf(metadata)


@pytest.mark.parametrize("build", [_bpe, _few_bytes, _spm])
def test_loaded_equals_saved(build: Callable[[], Tokenizer], tmp_path: Path) -> None:
    saved = build()
    save_tokenizer(saved, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    loaded = load_tokenizer(tmp_path)
    assert loaded.vocabulary == saved.vocabulary
    for text in CORPUS:
        assert loaded.encode(text, True, True) == saved.encode(text, True, True)
    assert tokenizer_files(loaded) == tokenizer_files(saved)


def test_chat_template_is_carried(tmp_path: Path) -> None:
    save_tokenizer(_bpe(), tmp_path)
    assert render_chat(load_tokenizer(tmp_path), []) == "<|im_start|>é"


@pytest.mark.parametrize("build", [_bpe, _spm])
def test_other_programs_read_the_same_ids(build: Callable[[], Tokenizer], tmp_path: Path) -> None:
    ours = build()
    save_tokenizer(ours, tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / TOKENIZER_FILE))
    for text in ("def f(x):\n    return {'a': 1}", "It's naïve<|im_end|>", "한국어 😀"):
        assert library.encode(text, add_special_tokens=False).ids == ours.encode(text, False, True)


def test_no_token_beyond_the_vocabulary_is_written() -> None:
    tokenizer = _few_bytes()
    library = tokenizers.Tokenizer.from_str(tokenizer_files(tokenizer)[TOKENIZER_FILE].decode())
    assert library.get_vocab_size() == tokenizer.vocab_size == 3


@pytest.mark.parametrize("name", FILES)
def test_missing_file_named(name: str, tmp_path: Path) -> None:
    save_tokenizer(_few_bytes(), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(MissingFileError, match=name):
        load_tokenizer(tmp_path)


Change = Callable[[dict[str, Any]], object]


def _edit(path: Path, change: Change) -> None:
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("name", "change", "cause"),
    [
        (METADATA_FILE, lambda v: v.update(format=2), "of another format"),
        (METADATA_FILE, lambda v: v.update(vocab_size=4), "number of tokens .expected 4, found 3"),
        (METADATA_FILE, lambda v: v.update(token_types={"9": 3}), "not the type of a token"),
        (METADATA_FILE, lambda v: v["keys"].pop("tokenizer.ggml.model"), "tokenizer.ggml.model"),
        (TOKENIZER_FILE, lambda v: v.pop("model"), "has no vocabulary"),
        (TOKENIZER_FILE, lambda v: v["model"]["vocab"].pop("b"), "number of tokens"),
        (TOKENIZER_FILE, lambda v: v["model"]["vocab"].update(b=7), "id 1: token is missing"),
        (TOKENIZER_FILE, lambda v: v["model"].update(merges=["a b"]), "not a pair of tokens"),
        (TOKENIZER_FILE, lambda v: v["model"].update(merges=[["a", "x"]]), "not in the vocabulary"),
    ],
)
def test_tampered_file_refused(name: str, change: Change, cause: str, tmp_path: Path) -> None:
    save_tokenizer(_few_bytes(), tmp_path)
    _edit(tmp_path / name, change)
    with pytest.raises(EngineSetError, match=cause) as caught:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_not_json_refused(content: bytes, tmp_path: Path) -> None:
    save_tokenizer(_few_bytes(), tmp_path)
    (tmp_path / TOKENIZER_FILE).write_bytes(content)
    with pytest.raises(EngineSetError, match="JSON"):
        load_tokenizer(tmp_path)
