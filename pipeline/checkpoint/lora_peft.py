"""LoRA adapters in PEFT directories: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from pipeline.checkpoint.hf_checkpoint import ADAPTER_CONFIG, CONFIG
from pipeline.checkpoint.hf_fields import Fields, read_json_object
from pipeline.checkpoint.lora_pair import Half, LowRank, Pairs, Transposed
from pipeline.checkpoint.safetensors_file import SafetensorsTensor, read_safetensors
from pipeline.checkpoint.slots import model_slots
from pipeline.checkpoint.stored import StoredTensor
from pipeline.errors import CheckpointError, MissingFileError
from pipeline.model import EMBEDDING, ModelConfig

WEIGHTS = "adapter_model.safetensors"
_TENSOR = re.compile(
    r"(?:base_model\.model\.)?(?P<module>[\w.]+?)\.(?:lora_(?P<side>[AB])\.weight|lora_embedding_(?P<table>[AB]))"
)
_HALVES: dict[str, Half] = {"A": "down", "B": "up"}
# keys that change what is computed -> the values that change nothing
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "use_dora": (False,),
    "use_qalora": (False,),
    "use_bdlora": (False,),
    "lora_bias": (False,),
    "modules_to_save": ([],),
    "layer_replication": ([],),
    "trainable_token_indices": ([], {}),
    "target_parameters": ([],),
    "alora_invocation_tokens": ([],),
    "arrow_config": ({},),
}
# others (pissa, olora, loftq, corda …) change the base model, and the adapter does not say how
_PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal")


def peft_files(directory: Path) -> list[Path]:
    """The two files; raises MissingFileError, or CheckpointError for the directory of a base model."""
    config, weights = directory / ADAPTER_CONFIG, directory / WEIGHTS
    if not config.is_file() and (directory / CONFIG).is_file():
        raise CheckpointError("a base model, not an adapter", file=directory)
    if not weights.is_file() and weights.with_suffix(".bin").is_file():
        raise MissingFileError("no such file, and pickled weights (.bin) are not read", file=weights)
    for file in (config, weights):
        if not file.is_file():
            raise MissingFileError("no such file", file=file)
    return [config, weights]


def read_peft_adapter(directory: Path, config: ModelConfig) -> dict[str, LowRank]:
    """HF name -> change of the base model's weight. Raises CheckpointError, MissingFileError."""
    settings, weights = peft_files(directory)
    fields = Fields(read_json_object(settings), settings)
    _refuse_unsupported(fields)
    pairs = Pairs(weights, config, {slot.name: slot for slot in model_slots(config)})
    for name, tensor in read_safetensors(weights).items():
        match = _TENSOR.fullmatch(name)
        weight = f"{match['module']}.weight" if match else ""
        if match is None or weight not in pairs.slots or (match["table"] is None) == (weight == EMBEDDING.name):
            pairs.unknown.append(name)
            continue
        pairs.put(weight, *_half(match, tensor))
    return {name: _low_rank(fields, name, up, down) for name, (up, down) in pairs.checked().items()}


def _half(match: re.Match[str], tensor: SafetensorsTensor) -> tuple[Half, StoredTensor]:
    """Which factor a tensor is. Of an embedding both are the other way round: A is `[rank, tokens]`, B `[hidden, rank]`."""
    if match["side"]:
        return _HALVES[match["side"]], tensor
    return ("up" if match["table"] == "A" else "down"), Transposed(tensor)


def _refuse_unsupported(fields: Fields) -> None:
    if fields.get("peft_type") != "LORA":
        raise fields.bad("peft_type", "not a LoRA adapter", "LORA", fields.get("peft_type"))
    for key, neutral in _NEUTRAL.items():
        fields.require(key, *neutral)
    start = fields.get("init_lora_weights", True)
    if start not in _PLAIN_STARTS:
        reason = "belongs to a base model that was changed before training"
        raise fields.bad("init_lora_weights", reason, "true, false, gaussian, eva or orthogonal", start)


def _low_rank(fields: Fields, name: str, up: StoredTensor, down: StoredTensor) -> LowRank:
    module, rank = name.removesuffix(".weight"), down.shape[0]
    ranks, alphas = _pattern(fields, "rank_pattern"), _pattern(fields, "alpha_pattern")
    key = _matching(ranks, module)
    expected = fields.count("r") if key is None else ranks.count(key)
    if rank != expected:
        raise CheckpointError("wrong rank", file=down.file, where=down.name, expected=expected, found=rank)
    key = _matching(alphas, module)
    alpha = fields.positive("lora_alpha") if key is None else alphas.positive(key)
    return LowRank(up, down, alpha / (math.sqrt(rank) if fields.flag("use_rslora", False) else rank))


def _pattern(fields: Fields, key: str) -> Fields:
    """Module name, or the end of one -> value. PEFT allows regular expressions; those of a stranger are not run."""
    pattern = fields.object(key)
    for name in pattern:
        if not re.fullmatch(r"[\w.]+", name):
            raise fields.bad(key, "regular expressions are not supported", "the end of a module's name", name)
    return Fields(pattern, fields.file)


def _matching(pattern: Fields, module: str) -> str | None:
    return next((name for name in pattern.data if f".{module}".endswith(f".{name}")), None)
