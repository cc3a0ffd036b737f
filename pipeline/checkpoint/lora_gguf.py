"""LoRA adapters in GGUF files, as llama.cpp's converter writes them: `<tensor>.lora_a` and `<tensor>.lora_b`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.checkpoint.derived import Interleaved
from pipeline.checkpoint.gguf_checkpoint import GgufTensor
from pipeline.checkpoint.gguf_split import open_shards
from pipeline.checkpoint.lora_pair import Half, LowRank, Pairs, Transposed
from pipeline.checkpoint.slots import model_slots
from pipeline.checkpoint.stored import StoredTensor
from pipeline.errors import CheckpointError
from pipeline.model import EMBEDDING, ModelConfig

_ALPHA = "adapter.lora.alpha"
_SIDES: dict[str, Half] = {".lora_a": "down", ".lora_b": "up"}


def read_gguf_adapter(path: Path, config: ModelConfig) -> dict[str, LowRank]:
    """HF name -> change of the base model's weight. Raises CheckpointError, MissingFileError."""
    files = open_shards(path)
    metadata = files[0].metadata
    _check_metadata(metadata, path, config)
    by_gguf = {slot.gguf: slot for slot in model_slots(config)}
    pairs = Pairs(path, config, {slot.name: slot for slot in by_gguf.values()})
    for tensor in (GgufTensor(file, info) for file in files for info in file.tensors.values()):
        name, dot, side = tensor.name.rpartition(".")
        slot, half = by_gguf.get(name), _SIDES.get(dot + side)
        if slot is None or half is None:
            pairs.unknown.append(tensor.name)
            continue
        stored: StoredTensor = tensor
        if half == "up" and slot.spec.permuted:
            stored = Interleaved(tensor, config.head_dim)
        # of the embedding, a has a row for each token and b is `[hidden, rank]`: llama.cpp looks rows of a up
        if slot.spec == EMBEDDING:
            half, stored = ("up", tensor) if half == "down" else ("down", Transposed(tensor))
        pairs.put(slot.name, half, stored)
    alpha = _alpha(metadata, path)
    return {name: LowRank(up, down, alpha / down.shape[0]) for name, (up, down) in pairs.checked().items()}


def _check_metadata(metadata: Mapping[str, Any], path: Path, config: ModelConfig) -> None:
    expected = {"general.type": "adapter", "adapter.type": "lora", "general.architecture": config.architecture}
    reasons = {
        "general.type": "not an adapter",
        "adapter.type": "not a LoRA adapter",
        "general.architecture": "adapter of another architecture",
    }
    for key, value in expected.items():
        found = metadata.get(key, "model" if key == "general.type" else None)
        if found != value:
            raise CheckpointError(reasons[key], file=path, where=key, expected=value, found=found)
    key = "adapter.alora.invocation_tokens"
    if key in metadata:
        raise CheckpointError("an adapter that waits for certain tokens cannot be merged", file=path, where=key)


def _alpha(metadata: Mapping[str, Any], path: Path) -> float:
    """Without one, or with 0, llama.cpp applies the product as it is and PEFT not at all."""
    alpha = metadata.get(_ALPHA)
    if type(alpha) is not float or not 0 < alpha < math.inf:
        raise CheckpointError("missing or impossible value", file=path, where=_ALPHA, expected="> 0", found=alpha)
    return alpha
