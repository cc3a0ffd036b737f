"""Metadata that is not what it must be: one line that names the key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.tokenizer.errors import TokenizerError
from pipeline.tokenizer.tokenizer import tokenizer_from_gguf
from tests.helpers.tokenizer_gguf import boundary_vocabulary, bpe_vocabulary, prefixed, sentencepiece_vocabulary

BPE = prefixed(bpe_vocabulary(["a", "b", "ab", "<|im_end|>"], ["a b"]))
SPM = prefixed(sentencepiece_vocabulary(["some text to learn"], 20))


@pytest.mark.parametrize(
    ("base", "key", "value", "cause"),
    [
        (BPE, "model", None, "tokenizer.ggml.model: not in the GGUF's metadata"),
        (BPE, "model", 3, "tokenizer.ggml.model: of another type (expected str, found int)"),
        (BPE, "model", "bert", "tokenizer.ggml.model: unknown tokenizer model (expected gpt2 or llama, found bert)"),
        (BPE, "pre", "martian", "found martian)"),
        (BPE, "tokens", None, "tokenizer.ggml.tokens: not in the GGUF's metadata, or empty"),
        (BPE, "tokens", [], "tokenizer.ggml.tokens: not in the GGUF's metadata, or empty"),
        (BPE, "tokens", "ab", "tokenizer.ggml.tokens: of another type (expected array, found str)"),
        (BPE, "tokens", ["a", 1], "tokenizer.ggml.tokens[1]: not a string"),
        (BPE, "tokens", ["a", "b", "ab", "a"], "tokenizer.ggml.tokens[3]: token 'a' is also token 0"),
        (BPE, "token_type", [1, 1], "tokenizer.ggml.token_type: shorter than the vocabulary (expected 4, found 2)"),
        (BPE, "token_type", [1, 1, "x", 1], "tokenizer.ggml.token_type[2]: not a number"),
        (BPE, "merges", None, "tokenizer.ggml.merges: not in the GGUF's metadata"),
        (BPE, "merges", ["a c"], "tokenizer.ggml.merges[0]: merge 'a c' names a token"),
        (BPE, "merges", ["ab"], "tokenizer.ggml.merges[0]: merge 'ab' names a token"),
        (BPE, "merges", ["b a"], "tokenizer.ggml.merges[0]: merge 'b a' names a token"),
        (BPE, "add_bos_token", True, "tokenizer.ggml.bos_token_id: BOS is to be added and has no valid id"),
        (BPE, "add_bos_token", 1, "tokenizer.ggml.add_bos_token: of another type (expected bool, found int)"),
        (BPE, "eos_token_id", True, "tokenizer.ggml.eos_token_id: of another type (expected int, found bool)"),
        (SPM, "scores", None, "tokenizer.ggml.scores: not in the GGUF's metadata"),
        (SPM, "scores", [0.0], "tokenizer.ggml.scores: shorter than the vocabulary"),
        (SPM, "tokens", ["a", "b"], "tokenizer.ggml.tokens: the vocabulary has no token for byte 0x00"),
    ],
)
def test_fault_is_one_line_that_names_the_key(base: dict[str, Any], key: str, value: Any, cause: str) -> None:
    metadata = {name: entry for name, entry in base.items() if name != f"tokenizer.ggml.{key}" or value is not None}
    if value is not None:
        metadata[f"tokenizer.ggml.{key}"] = value
    with pytest.raises(TokenizerError) as caught:
        tokenizer_from_gguf(metadata)
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numpy_values_are_taken() -> None:
    metadata = BPE | {
        "tokenizer.ggml.token_type": np.array([1, 1, 1, 3], np.int32),
        "tokenizer.ggml.eos_token_id": np.uint32(3),
        "tokenizer.ggml.tokens": tuple(BPE["tokenizer.ggml.tokens"]),
    }
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.vocabulary.eos_id == 3
    assert tokenizer.encode("ab<|im_end|>", False, True) == [2, 3]


def test_missing_pre_means_default() -> None:
    named, unnamed = prefixed(boundary_vocabulary() | {"pre": "default"}), prefixed(boundary_vocabulary())
    del unnamed["tokenizer.ggml.pre"]
    text = "a1'1234 !_"
    assert tokenizer_from_gguf(named).encode(text) == tokenizer_from_gguf(unnamed).encode(text)


def test_lone_surrogate_refused() -> None:
    with pytest.raises(TokenizerError, match=r"lone surrogate U\+D83D at character 2"):
        tokenizer_from_gguf(BPE).encode("ab\ud83d")


@pytest.mark.parametrize("token", [-1, 4])
def test_id_outside_the_vocabulary_refused(token: int) -> None:
    with pytest.raises(TokenizerError, match=f"expected 0 to 3, found {token}"):
        tokenizer_from_gguf(BPE).decode([token])
