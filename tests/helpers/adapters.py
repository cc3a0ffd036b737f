"""LoRA adapters of tiny models: random factors, written as llama.cpp's converter and as PEFT write them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from pipeline.checkpoint.slots import model_slots
from pipeline.model import EMBEDDING, ModelConfig
from tests.helpers.tiny import close_gguf, gguf_order, quantized

Float32 = npt.NDArray[np.float32]
Factors = dict[str, tuple[Float32, Float32]]

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def adapter_factors(config: ModelConfig, modules: Iterable[str], rank: int = 4, seed: int = 1) -> Factors:
    """HF name -> (up `[rows, rank]`, down `[rank, columns]`) for the weights whose module's name ends so."""
    rng = np.random.default_rng(seed)
    factors: Factors = {}
    for slot in model_slots(config):
        if len(slot.shape) == 2 and slot.name.removesuffix(".weight").rpartition(".")[2] in set(modules):
            up = rng.standard_normal((slot.shape[0], rank)).astype(np.float32)
            down = rng.standard_normal((rank, slot.shape[1])).astype(np.float32)
            factors[slot.name] = up, down * np.float32(0.2 / np.sqrt(slot.shape[1]))
    return factors


def write_gguf_adapter(
    path: Path, config: ModelConfig, factors: Factors, alpha: float = 8.0, qtype: str = "F32", **keys: Any
) -> Path:
    """A GGUF adapter; `keys` replace metadata (dots as `__`), None leaves a key out."""
    metadata: dict[str, Any] = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": alpha}
    metadata |= {key.replace("__", "."): value for key, value in keys.items()}
    writer = gguf.GGUFWriter(path, metadata.pop("general.architecture", config.architecture))
    for key, value in metadata.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_float32(key, value)
    slots = {slot.name: slot for slot in model_slots(config)}
    kind = gguf.GGMLQuantizationType[qtype]
    for name, (up, down) in factors.items():
        slot = slots[name]
        pair = {"a": down, "b": gguf_order(up, slot, config)}
        if slot.spec == EMBEDDING:
            pair = {"a": up, "b": np.ascontiguousarray(down.T)}
        for side, rows in pair.items():
            writer.add_tensor(f"{slot.gguf}.lora_{side}", quantized(rows, kind), raw_dtype=kind)
    close_gguf(writer)
    return path


def write_peft_adapter(
    folder: Path, factors: Factors, alpha: float = 8.0, dtype: npt.DTypeLike = np.float32, **settings: Any
) -> Path:
    """A PEFT directory; `settings` replace keys of adapter_config.json."""
    tensors = {}
    for name, (up, down) in factors.items():
        module = "base_model.model." + name.removesuffix(".weight")
        if name == EMBEDDING.name:
            tensors[f"{module}.lora_embedding_A"] = np.ascontiguousarray(up.T)
            tensors[f"{module}.lora_embedding_B"] = np.ascontiguousarray(down.T)
        else:
            tensors[f"{module}.lora_A.weight"], tensors[f"{module}.lora_B.weight"] = down, up
    folder.mkdir(exist_ok=True)
    rank = next(iter(factors.values()))[1].shape[0] if factors else 4
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.1,
        "bias": "none",
        "fan_in_fan_out": None,
        "init_lora_weights": True,
        "modules_to_save": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "target_modules": list(PROJECTIONS),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config | settings))
    save_file({name: rows.astype(dtype) for name, rows in tensors.items()}, folder / "adapter_model.safetensors")
    return folder
