"""llama.cpp's own tokenizer as an oracle: a GGUF loaded `vocab_only`, through the wheel that evaluation uses."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterable
from pathlib import Path

from pipeline.evaluate.llama_abi import load_library
from pipeline.tokenizer.tokenizer import Tokenizer
from tests.helpers.text_corpus import random_text


class LlamaVocab:
    """The vocabulary of one GGUF."""

    def __init__(self, path: Path) -> None:
        self._lib = load_library()
        pointer, i32 = ctypes.c_void_p, ctypes.c_int32
        self._lib.llama_token_to_piece.argtypes = [pointer, i32, ctypes.c_char_p, i32, i32, ctypes.c_bool]
        for name in ("bos", "eos", "eot"):
            getattr(self._lib, f"llama_vocab_{name}").argtypes = [pointer]
        params = self._lib.llama_model_default_params()
        params.vocab_only = True
        self._model = self._lib.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self.size = int(self._lib.llama_vocab_n_tokens(self._vocab))

    def close(self) -> None:
        self._lib.llama_model_free(self._model)

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        count = self._lib.llama_tokenize(self._vocab, data, len(data), ids, len(ids), add_special, parse_special)
        return list(ids[:count])

    def detokenize(self, tokens: list[int], special: bool) -> str:
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        size = -self._lib.llama_detokenize(self._vocab, ids, len(tokens), None, 0, False, special)
        text = ctypes.create_string_buffer(size + 1)
        count = self._lib.llama_detokenize(self._vocab, ids, len(tokens), text, len(text), False, special)
        return text.raw[:count].decode("utf-8", "replace")

    def piece(self, token: int, special: bool) -> bytes:
        text = ctypes.create_string_buffer(1024)
        count = self._lib.llama_token_to_piece(self._vocab, token, text, len(text), 0, special)
        return text.raw[:count]

    def ends(self, tokens: Iterable[int]) -> set[int]:
        return {token for token in tokens if self._lib.llama_vocab_is_eog(self._vocab, token)}

    def special_id(self, name: str) -> int | None:
        token = int(getattr(self._lib, f"llama_vocab_{name}")(self._vocab))
        return None if token < 0 else token


def assert_same_ids(ours: Tokenizer, oracle: LlamaVocab, text: str, add_special: bool, parse_special: bool) -> None:
    """The ids of a text are llama.cpp's."""
    assert ours.encode(text, add_special, parse_special) == oracle.tokenize(text, add_special, parse_special), text


def assert_same_ids_of_random_texts(ours: Tokenizer, oracle: LlamaVocab, seed: int, count: int) -> None:
    """The ids of `count` seeded random texts are llama.cpp's, special tokens parsed in about half of them."""
    rng = random.Random(seed)
    for _ in range(count):
        assert_same_ids(ours, oracle, random_text(rng), False, rng.random() < 0.5)
