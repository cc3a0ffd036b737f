"""Token ids against llama.cpp's, on generated vocabularies: every row of the table of pre-tokenizers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.tokenizer.pretokenizers import PRE_TOKENIZERS
from pipeline.tokenizer.tokenizer import Tokenizer, tokenizer_from_gguf
from tests.helpers.llama_vocab import LlamaVocab, assert_same_ids, assert_same_ids_of_random_texts
from tests.helpers.text_corpus import CORPUS, PLAIN
from tests.helpers.tokenizer_gguf import (
    boundary_vocabulary,
    bpe_vocabulary,
    prefixed,
    trained_bpe,
    with_tokens,
    write_vocab_gguf,
)

CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|><|im_end|>", "<|", "<s>"]
USER_DEFINED = ["<think>", "  \n", "9012"]
# One name per row; the other names of a row share its patterns.
ROWS = sorted({id(row): name for name, row in reversed(PRE_TOKENIZERS.items())}.values())


@pytest.fixture(scope="module")
def trained() -> tuple[list[str], list[str]]:
    return trained_bpe(PLAIN, 1200)


@pytest.fixture(scope="module", params=ROWS)
def pair(
    request: pytest.FixtureRequest, trained: tuple[list[str], list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Tokenizer, LlamaVocab]]:
    vocabulary = with_tokens(with_tokens(bpe_vocabulary(*trained), CONTROL, 3), USER_DEFINED, 4)
    vocabulary |= {"pre": request.param, "bos_token_id": 5, "eos_token_id": 6}
    yield from _both(vocabulary, tmp_path_factory.mktemp("row") / "v.gguf")


def _both(vocabulary: dict[str, object], path: Path) -> Iterator[tuple[Tokenizer, LlamaVocab]]:
    ours = tokenizer_from_gguf(prefixed(vocabulary))
    oracle = LlamaVocab(write_vocab_gguf(path, vocabulary))
    yield ours, oracle
    oracle.close()


@pytest.mark.parametrize("parse_special", [False, True])
@pytest.mark.parametrize("add_special", [False, True])
def test_ids_corpus(pair: tuple[Tokenizer, LlamaVocab], add_special: bool, parse_special: bool) -> None:
    for text in CORPUS:
        assert_same_ids(*pair, text, add_special, parse_special)


def test_ids_random_text(pair: tuple[Tokenizer, LlamaVocab]) -> None:
    assert_same_ids_of_random_texts(*pair, seed=20, count=300)


def test_pieces_all_tokens(pair: tuple[Tokenizer, LlamaVocab]) -> None:
    ours, oracle = pair
    for special in (False, True):
        for token in range(oracle.size):
            assert ours.piece(token, special) == oracle.piece(token, special)


def test_decode_round_trip(pair: tuple[Tokenizer, LlamaVocab]) -> None:
    ours, _ = pair
    for text in CORPUS:
        assert ours.decode(ours.encode(text, False, True)) == text


def test_end_ids(pair: tuple[Tokenizer, LlamaVocab]) -> None:
    ours, oracle = pair
    assert ours.end_ids == oracle.ends(range(oracle.size))


# Where a character's class changes between versions of Unicode, and around each class of interest.
EDGES = [
    0x1C8A,
    0xA7CB,
    0x10D40,
    0x10D4A,
    0x10D69,
    0x116D0,
    0x11BF0,
    0x1CCF0,
    0x1E5F1,
    0x2FFC,
    0x31EF,
    0x2EBF0,
    0x323AF,
]


@pytest.mark.parametrize("name", ROWS)
def test_boundaries_by_code_point(name: str, tmp_path: Path) -> None:
    vocabulary = boundary_vocabulary() | {"pre": name, "add_bos_token": False}
    rng = random.Random(name)
    codes = [*range(0x20, 0x180), *EDGES, *(rng.randrange(0x180, 0x20000) for _ in range(400))]
    for ours, oracle in _both(vocabulary, tmp_path / "v.gguf"):
        for code in codes:
            char = "�" if 0xD800 <= code < 0xE000 else chr(code)
            text = f"a{char}a 1{char}1 !{char}_\n {char} {char}{char}\n{char}."
            assert ours.encode(text, False) == oracle.tokenize(text, False, False), hex(code)


def test_missing_bytes_are_dropped_and_part_their_neighbours(tmp_path: Path) -> None:
    tokens = ["a", "b", "ab", "c"]
    vocabulary = bpe_vocabulary(tokens, ["a b"]) | {"bos_token_id": 0, "eos_token_id": 0}
    for ours, oracle in _both(vocabulary, tmp_path / "v.gguf"):
        assert ours.encode("ab", False) == [2]
        for text in ("a\x00b", "aéb", "ab c", "é", "cabéab"):
            assert ours.encode(text, False) == oracle.tokenize(text, False, False)
