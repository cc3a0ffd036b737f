"""Opening a GGUF with a vocabulary of 151,936 tokens."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np

from pipeline.checkpoint.gguf_file import GgufFile
from tests.bench.measure import Row, median_seconds

TOKENS = 151_936


def measure(folder: Path) -> list[Row]:
    path = folder / "vocabulary.gguf"
    if not path.is_file():
        _write(path)
    ours = median_seconds(lambda: GgufFile(path), 5)
    theirs = median_seconds(lambda: gguf.GGUFReader(path), 1)
    return [Row("open a GGUF with 151,936 tokens", ours, "s", {"gguf.GGUFReader": theirs})]


def _write(path: Path) -> None:
    """Tokens, scores, types and merges in the sizes of a large vocabulary, and one tensor."""
    writer = gguf.GGUFWriter(path, "qwen2")
    words = [f"token{i:x}" for i in range(TOKENS)]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([1] * TOKENS)
    writer.add_token_merges([f"{a} {b}" for a, b in pairwise(words)])
    writer.add_tensor("token_embd.weight", np.zeros((32, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
