"""SentencePiece vocabularies against llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.tokenizer.tokenizer import Tokenizer, tokenizer_from_gguf
from tests.helpers.llama_vocab import LlamaVocab, assert_same_ids, assert_same_ids_of_random_texts
from tests.helpers.text_corpus import CORPUS, PLAIN
from tests.helpers.tokenizer_gguf import prefixed, sentencepiece_vocabulary, with_tokens, write_vocab_gguf

CASES = {
    "distinct-scores": {"score_step": 1.0},
    "tied-scores": {"score_step": 0.02},
    "no-prefix-add-eos": {"score_step": 1.0, "add_space_prefix": False, "add_eos_token": True},
    "no-bos": {"score_step": 1.0, "add_bos_token": False},
    "gemma": {
        "score_step": 0.02,
        "add_space_prefix": False,
        "user_defined": ["  ", "    ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "<table>", "</td>", "<s"],
    },
}


@pytest.fixture(scope="module", params=CASES)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Tokenizer, LlamaVocab]]:
    options = dict(CASES[request.param])
    vocabulary = sentencepiece_vocabulary(PLAIN, 900, options.pop("score_step"))
    more = [text for text in options.pop("user_defined", []) if text not in vocabulary["tokens"]]
    vocabulary = (
        with_tokens(with_tokens(vocabulary, ["<|im_start|>", "<|im_end|>"], 3), ["<think>", "=-=", *more], 4) | options
    )
    ours = tokenizer_from_gguf(prefixed(vocabulary))
    oracle = LlamaVocab(write_vocab_gguf(tmp_path_factory.mktemp("spm") / "v.gguf", vocabulary))
    yield ours, oracle
    oracle.close()


@pytest.mark.parametrize("parse_special", [False, True])
@pytest.mark.parametrize("add_special", [False, True])
def test_ids_corpus(pair: tuple[Tokenizer, LlamaVocab], add_special: bool, parse_special: bool) -> None:
    for text in CORPUS:
        assert_same_ids(*pair, text, add_special, parse_special)


def test_ids_random_text(pair: tuple[Tokenizer, LlamaVocab]) -> None:
    assert_same_ids_of_random_texts(*pair, seed=21, count=500)


def test_decode_equals_detokenize(pair: tuple[Tokenizer, LlamaVocab]) -> None:
    ours, oracle = pair
    for text in CORPUS:
        ids = ours.encode(text, False, True)
        for special in (False, True):
            assert ours.decode(ids, special) == oracle.detokenize(ids, special), text


def test_decode_round_trip_without_special(pair: tuple[Tokenizer, LlamaVocab]) -> None:
    ours, _ = pair
    for text in CORPUS:
        # U+2581 stands for the space itself, and a user-defined token takes a space after it.
        if "▁" not in text and "=-=" not in text and "<think>" not in text:
            assert ours.decode(ours.encode(text, False)) == text


def test_end_ids(pair: tuple[Tokenizer, LlamaVocab]) -> None:
    ours, oracle = pair
    assert ours.end_ids == oracle.ends(range(oracle.size))
