"""Special tokens that llama.cpp knows by their text or by the model's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.tokenizer.special_texts import END_TEXTS, FIM_TEXTS, SHOWN_TEXTS
from pipeline.tokenizer.tokenizer import tokenizer_from_gguf
from tests.helpers.llama_vocab import LlamaVocab
from tests.helpers.tokenizer_gguf import (
    boundary_vocabulary,
    prefixed,
    sentencepiece_vocabulary,
    with_tokens,
    write_vocab_gguf,
)

FIM = [texts[-1] for texts in FIM_TEXTS.values()]
GROUPS = {
    "all-ends-but-end": [text for text in END_TEXTS if text not in ("<|end|>", "</s>")],
    "harmony": ["<|end|>", "<|return|>", "<|call|>", *SHOWN_TEXTS],
    "solar": ["<|end|>", "<|calls|>", "<|flush|>"],
    "end-alone": ["<|end|>", "<|return|>"],
    "gemma": ["</s>", "<|tool_response>", "<eos>"],
    "paddle": ["</s>", "<eos>"],
    "fill-in": FIM,
}


@pytest.mark.parametrize("kind", [1, 3])
@pytest.mark.parametrize("group", GROUPS)
def test_kinds_and_ends_by_text(group: str, kind: int, tmp_path: Path) -> None:
    vocabulary = with_tokens(boundary_vocabulary(), ["<|eos|>"], 3)
    vocabulary |= {"eos_token_id": len(vocabulary["tokens"]) - 1}
    vocabulary = with_tokens(vocabulary, GROUPS[group], kind)
    _compare(vocabulary, "".join(f"a{text} b" for text in GROUPS[group]), tmp_path)


@pytest.mark.parametrize("name", ["Phi-3 mini", "my PHI3", "Phi 3"])
def test_phi_3_strips_after_special(name: str, tmp_path: Path) -> None:
    vocabulary = with_tokens(sentencepiece_vocabulary(["some text to learn"], 40), ["<|endoftext|>", "<|user|>"], 3)
    text = "<|user|> \n\t some <s>  text</s> \u00a0<unk> to<|endoftext|> learn<|user|>  <|user|>"
    _compare(vocabulary, text, tmp_path, name)


def _compare(vocabulary: dict[str, Any], text: str, folder: Path, name: str = "test") -> None:
    ours = tokenizer_from_gguf(prefixed(vocabulary) | {"general.name": name})
    oracle = LlamaVocab(write_vocab_gguf(folder / "v.gguf", vocabulary, name))
    assert ours.end_ids == oracle.ends(range(oracle.size))
    for special in (False, True):
        assert ours.encode(text, False, special) == oracle.tokenize(text, False, special)
        assert [ours.piece(i, special) for i in range(oracle.size)] == [
            oracle.piece(i, special) for i in range(oracle.size)
        ]
    oracle.close()
