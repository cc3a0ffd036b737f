"""Streaming: whole characters only, and all of them."""

from __future__ import annotations

import pytest

from pipeline.tokenizer.tokenizer import Tokenizer, tokenizer_from_gguf
from tests.helpers.text_corpus import CORPUS
from tests.helpers.tokenizer_gguf import boundary_vocabulary, byte_level, prefixed, with_tokens


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizer_from_gguf(prefixed(with_tokens(boundary_vocabulary(), ["<|im_end|>"], 3)))


def test_pieces_are_whole_characters(tokenizer: Tokenizer) -> None:
    for text in CORPUS:
        stream = tokenizer.stream(special=True)
        pieces = [stream.feed(token) for token in tokenizer.encode(text, False, True)]
        assert "".join(pieces) + stream.close() == text
        assert all("�" not in piece for piece in pieces) or "�" in text


def test_emoji_appears_with_its_last_byte(tokenizer: Tokenizer) -> None:
    stream = tokenizer.stream()
    ids = tokenizer.encode("👍", False)
    assert len(ids) == 4
    assert [stream.feed(token) for token in ids] == ["", "", "", "👍"]
    assert stream.close() == ""


def test_broken_character_is_replaced_not_lost(tokenizer: Tokenizer) -> None:
    stream = tokenizer.stream()
    half, letter = tokenizer.vocabulary.tokens.index(byte_level("👍")[0]), tokenizer.encode("x", False)[0]
    assert stream.feed(half) + stream.feed(letter) == "�x"
    assert stream.feed(half) == ""
    assert stream.close() == "�"


def test_control_tokens_are_hidden(tokenizer: Tokenizer) -> None:
    end = tokenizer.vocabulary.tokens.index("<|im_end|>")
    assert tokenizer.stream().feed(end) == ""
    assert tokenizer.stream(special=True).feed(end) == "<|im_end|>"
    assert end in tokenizer.end_ids
