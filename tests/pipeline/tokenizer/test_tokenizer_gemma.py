"""Gemma's vocabulary of 262,144 tokens against llama.cpp: no space before a text, runs of white space, HTML tags."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.checkpoint.gguf_file import GgufFile
from pipeline.tokenizer.chat import render_chat
from pipeline.tokenizer.errors import ChatTemplateError
from pipeline.tokenizer.store import load_tokenizer, save_tokenizer
from pipeline.tokenizer.tokenizer import Tokenizer, tokenizer_from_gguf
from pipeline.tokenizer.vocabulary import Kind
from tests.helpers.llama_vocab import LlamaVocab, assert_same_ids, assert_same_ids_of_random_texts
from tests.helpers.real_models import gemma3_270m
from tests.helpers.text_corpus import CORPUS

pytestmark = pytest.mark.slow

RUNS = [
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    "\t\t\t",
    "▁",
    "▁▁",
    " \n",
    "\r\n",
    "\u00a0",
    " " * 31,
    " " * 32,
    "\n" * 33,
    "\t" * 63,
]
MARKS = [
    "<table>",
    "</td>",
    "<s>",
    "</s>",
    "<h1",
    "<start_of_turn>",
    "<end_of_turn>",
    "<bos>",
    "<unused7>",
    "[multimodal]",
    "<0x0A>",
]
WORDS = ["word", "Wörter", "日本語", "😀👍🏽", "don't", "3.14", "x=y", "."]


@pytest.fixture(scope="module")
def ours() -> Tokenizer:
    return tokenizer_from_gguf(GgufFile(gemma3_270m()).metadata)


@pytest.fixture(scope="module")
def oracle() -> Iterator[LlamaVocab]:
    vocab = LlamaVocab(gemma3_270m())
    yield vocab
    vocab.close()


def test_ids_corpus(ours: Tokenizer, oracle: LlamaVocab) -> None:
    for text in CORPUS:
        for add_special in (False, True):
            for parse_special in (False, True):
                assert_same_ids(ours, oracle, text, add_special, parse_special)


def test_ids_of_user_defined_tokens(ours: Tokenizer, oracle: LlamaVocab) -> None:
    """Alone, doubled and between words: found in any text, the longest first."""
    tokens = [ours.vocabulary.tokens[i] for i in ours.vocabulary.ids_of_kind(Kind.USER_DEFINED)]
    assert len(tokens) == 164
    for token in tokens:
        for text in (token, token * 2, f"a{token}b", f" {token} "):
            assert_same_ids(ours, oracle, text, False, False)


def test_ids_of_runs_and_marks(ours: Tokenizer, oracle: LlamaVocab) -> None:
    rng = random.Random(31)
    for _ in range(3000):
        text = "".join(rng.choice(rng.choice((RUNS, MARKS, WORDS))) for _ in range(rng.randrange(12)))
        assert_same_ids(ours, oracle, text, rng.random() < 0.5, rng.random() < 0.5)


def test_ids_random_text(ours: Tokenizer, oracle: LlamaVocab) -> None:
    assert_same_ids_of_random_texts(ours, oracle, seed=32, count=3000)


@settings(max_examples=1000, deadline=None)
@given(st.text(max_size=60))
def test_ids_any_text(ours: Tokenizer, oracle: LlamaVocab, text: str) -> None:
    assert_same_ids(ours, oracle, text, False, False)


def test_decode_equals_detokenize(ours: Tokenizer, oracle: LlamaVocab) -> None:
    for text in CORPUS:
        ids = ours.encode(text, False, True)
        for special in (False, True):
            assert ours.decode(ids, special) == oracle.detokenize(ids, special)


def test_pieces_and_ends(ours: Tokenizer, oracle: LlamaVocab) -> None:
    assert oracle.size == ours.vocab_size == 262144
    assert [ours.piece(token) for token in range(oracle.size)] == [oracle.piece(t, True) for t in range(oracle.size)]
    assert ours.end_ids == oracle.ends(range(oracle.size))
    for name in ("bos", "eos", "eot"):
        assert getattr(ours.vocabulary, f"{name}_id") == oracle.special_id(name)


def test_no_chat_template_is_said(ours: Tokenizer) -> None:
    with pytest.raises(ChatTemplateError, match="the model has no chat template"):
        render_chat(ours, [{"role": "user", "content": "Hi"}])


def test_loaded_equals_saved(ours: Tokenizer, tmp_path: Path) -> None:
    save_tokenizer(ours, tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.vocabulary == ours.vocabulary
    assert [loaded.encode(text, True, True) for text in CORPUS] == [ours.encode(text, True, True) for text in CORPUS]
