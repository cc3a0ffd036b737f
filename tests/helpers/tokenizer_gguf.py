"""Vocabulary-only GGUFs, written for one test: what llama.cpp and our tokenizer both read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gguf import GGUFReader, GGUFWriter
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from pipeline.tokenizer.bpe import BYTE_OF

LLAMA_KEYS = {
    "block_count": 1,
    "context_length": 64,
    "embedding_length": 64,
    "feed_forward_length": 64,
    "attention.head_count": 1,
}


def write_vocab_gguf(path: Path, tokenizer: Mapping[str, Any], name: str = "test") -> Path:
    """A GGUF without tensors. `tokenizer` maps keys without `tokenizer.ggml.` to values; None leaves a key out."""
    writer = GGUFWriter(path, "llama")
    writer.add_name(name)
    for key, number in LLAMA_KEYS.items():
        writer.add_uint32(f"llama.{key}", number)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    for key, value in tokenizer.items():
        if value is not None:
            _add(writer, _full_key(key), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def read_metadata(path: Path) -> dict[str, Any]:
    """Key to value, through the `gguf` package's reader."""
    return {key: field.contents() for key, field in GGUFReader(path).fields.items()}


def byte_level(text: str) -> str:
    """`text` in the byte alphabet of byte-level BPE."""
    char_of = {byte: char for char, byte in BYTE_OF.items()}
    return "".join(char_of[byte] for byte in text.encode())


def boundary_vocabulary(lefts: str = "a1!_ \n'.") -> dict[str, Any]:
    """A byte-level BPE whose every merge joins one of `lefts` to a byte: ids show where text was split."""
    tokens = list(BYTE_OF)
    merges = []
    for left in byte_level(lefts):
        for right in BYTE_OF:
            if left + right not in tokens[256:]:
                tokens.append(left + right)
                merges.append(f"{left} {right}")
    return bpe_vocabulary(tokens, merges)


def bpe_vocabulary(tokens: Sequence[str], merges: Sequence[str]) -> dict[str, Any]:
    """Metadata of a byte-level BPE."""
    kinds = [1] * len(tokens)
    return {"model": "gpt2", "pre": "smollm", "tokens": list(tokens), "token_type": kinds, "merges": list(merges)}


def trained_bpe(texts: Sequence[str], size: int) -> tuple[list[str], list[str]]:
    """Tokens and merges learnt across all boundaries, so that ids show where a pre-tokenizer cuts."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    )
    model = json.loads(library.to_str())["model"]
    return list(model["vocab"]), [" ".join(pair) for pair in model["merges"]]


def sentencepiece_vocabulary(texts: Sequence[str], size: int, score_step: float = 1.0) -> dict[str, Any]:
    """A SentencePiece BPE with byte tokens; a `score_step` below 1 gives groups of tokens the same score."""
    library = Tokenizer(models.BPE())
    library.normalizer = normalizers.Replace(" ", "▁")
    library.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, limit_alphabet=80, show_progress=False))
    learnt = list(json.loads(library.to_str())["model"]["vocab"])
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *learnt]
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(learnt)]
    scores = [0.0] * 259 + [-float(int(rank * score_step)) for rank in range(len(learnt))]
    return {"model": "llama", "tokens": tokens, "token_type": kinds, "scores": scores}


def with_tokens(vocabulary: Mapping[str, Any], texts: Sequence[str], kind: int) -> dict[str, Any]:
    """The vocabulary with more tokens of one kind at its end."""
    more = {"tokens": list(texts), "token_type": [kind] * len(texts), "scores": [0.0] * len(texts)}
    return {key: [*value, *more[key]] if key in more else value for key, value in vocabulary.items()}


def prefixed(vocabulary: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that a GGUF written from `vocabulary` has."""
    return {_full_key(key): value for key, value in vocabulary.items()}


def _full_key(key: str) -> str:
    return key if key.startswith("tokenizer.") else f"tokenizer.ggml.{key}"
