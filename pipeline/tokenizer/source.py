"""The tokenizer that comes with a source of weights."""

from __future__ import annotations

from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.checkpoint.wrapped import innermost
from pipeline.tokenizer.tokenizer import Tokenizer, tokenizer_from_gguf

MODEL_KEY = "tokenizer.ggml.model"
NO_TOKENIZER = ("none", "no_vocab")


def source_tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer in a GGUF's metadata; None for a GGUF without one and for a Hugging Face directory.

    Raises TokenizerError for one that cannot be built exactly.
    """
    source = innermost(checkpoint)
    if not isinstance(source, GgufCheckpoint):
        return None
    metadata = source.files[0].metadata
    if metadata.get(MODEL_KEY, NO_TOKENIZER[0]) in NO_TOKENIZER:
        return None
    return tokenizer_from_gguf(metadata)
