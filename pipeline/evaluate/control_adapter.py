"""A LoRA adapter for the control: what it adds to tensors of a GGUF, read by `gguf` and `safetensors` alone.

merged = float32(value + f * sum over k of up[i, k] * down[k, j]), f = float32(scale * alpha / rank); the sum in float64, in the
order of k (docs/checkpoint.md).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, dequantize

from pipeline.errors import CheckpointError

Array = npt.NDArray[Any]
Factors = dict[str, tuple[Array, Array, float]]

_MODULES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_PREFIX = "base_model.model.model.layers."
_UP, _DOWN = ".lora_B.weight", ".lora_A.weight"
BLOCK_ROWS = 1024


class Adapter:
    """Adds low-rank changes to float32 tensors under their GGUF names; a `Change` of `control_weights`.

    Parameters
    ----------
    factors : GGUF name -> (up `[rows, rank]` in the GGUF's order of rows, down `[rank, columns]`, alpha / rank)
    """

    def __init__(self, factors: Factors, scale: float) -> None:
        self.factors, self.scale = factors, scale

    def __call__(self, name: str, values: Array, first: int = 0) -> Array:
        """Rows of a tensor from `first` on, changed."""
        if name not in self.factors:
            return values
        up, down, weight = self.factors[name]
        up, down, factor = up.astype(np.float64), down.astype(np.float64), np.float64(np.float32(self.scale * weight))
        merged = np.empty_like(values)
        for start in range(0, len(values), BLOCK_ROWS):
            block = values[start : start + BLOCK_ROWS]
            changed = up[first + start : first + start + len(block)]
            total = sum(np.outer(changed[:, k], down[k]) for k in range(len(down)))
            merged[start : start + BLOCK_ROWS] = block + factor * total
        return merged


def read_adapter(path: Path, scale: float, gguf: Path) -> Adapter:
    """The adapter at `path`, a GGUF or a PEFT directory, for the model in `gguf`.

    Raises CheckpointError for one that this reader does not know: of the embedding or the head, or with patterns of ranks.
    """
    factors = _peft_factors(path, gguf) if path.is_dir() else _gguf_factors(path)
    for name in factors:
        if not name.startswith("blk."):
            raise CheckpointError("the control merges adapters of layers only", file=path, where=name)
    return Adapter(factors, scale)


def _gguf_factors(path: Path) -> Factors:
    reader = GGUFReader(path)
    alpha = float(reader.fields["adapter.lora.alpha"].contents())
    found: dict[str, Array] = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        found[tensor.name] = values.reshape(tuple(int(n) for n in reversed(tensor.shape)))
    names = [name.removesuffix(".lora_a") for name in found if name.endswith(".lora_a")]
    pairs = {name: (found[f"{name}.lora_b"], found[f"{name}.lora_a"]) for name in names}
    return {name: (up, down, alpha / len(down)) for name, (up, down) in pairs.items()}


def _peft_factors(path: Path, gguf: Path) -> Factors:
    from safetensors.numpy import load_file  # of the extra `evaluate`; a command that needs no adapter does without

    settings = json.loads((path / "adapter_config.json").read_text())
    for key in ("rank_pattern", "alpha_pattern"):
        if settings.get(key):
            raise CheckpointError("not known to the control", file=path / "adapter_config.json", where=key)
    rank = settings["r"]
    weight = settings["lora_alpha"] / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    heads = _interleaved_heads(gguf)
    tensors, factors = load_file(path / "adapter_model.safetensors"), Factors()
    for name, up in tensors.items():
        key = _gguf_name(name, path)
        if name.endswith(_UP):
            part = key.split(".")[2]
            factors[key] = _interleave(up, heads.get(part, 0)), tensors[name.replace(_UP, _DOWN)], weight
    return factors


def _gguf_name(name: str, path: Path) -> str:
    layer, _, module = name.removeprefix(_PREFIX).removesuffix(_UP).removesuffix(_DOWN).partition(".")
    if not name.startswith(_PREFIX) or module not in _MODULES:
        raise CheckpointError("the control merges adapters of layers only", file=path, where=name)
    return f"blk.{layer}.{_MODULES[module]}.weight"


def _interleaved_heads(gguf: Path) -> dict[str, int]:
    """Heads of the projections whose rows llama's converter interleaves."""
    fields = GGUFReader(gguf).fields
    if fields["general.architecture"].contents() != "llama":
        return {}
    heads = int(fields["llama.attention.head_count"].contents())
    own = fields.get("llama.attention.head_count_kv")
    return {"attn_q": heads, "attn_k": int(own.contents()) if own else heads}


def _interleave(up: Array, heads: int) -> Array:
    if not heads:
        return up
    halves = up.reshape(heads, 2, len(up) // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(up.shape)
