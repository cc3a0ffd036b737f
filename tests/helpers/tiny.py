"""Tiny random models with odd sizes, as an HF directory and as the GGUF that llama.cpp's converter would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import libgguf
import numpy as np
import numpy.typing as npt

from pipeline.checkpoint.noise import NoiseCheckpoint, write_hf_directory
from pipeline.checkpoint.slots import Slot, every_nth_full, model_slots, stored_shapes
from pipeline.model import ARCHITECTURES, EMBEDDING, FULL, HEAD, SLIDING, ModelConfig

Float32 = npt.NDArray[np.float32]

_SIZES: dict[str, Any] = {
    "hidden_size": 320,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "intermediate_size": 864,
    "vocab_size": 1000,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_ids": (2,),
}
# every second layer slides in a window that the shortest prompts leave
_SLIDING_SIZES: dict[str, Any] = {"rope_theta": 1e6, "sliding_window": 8, "rope_local_theta": 10000.0}
# powers of two; a bias of up to 1/2 shows in every logit
_FACTORS = {
    EMBEDDING.name: 4,
    HEAD.name: 4,
    "q_proj.weight": 4,
    "k_proj.weight": 4,
    ".bias": 8,
    "norm.weight": 1,
    "": 2,
}


def tiny_config(arch: str = "llama", **overrides: Any) -> ModelConfig:
    """A model of `arch` with hidden size 320 and the rest to match; every field can be overridden.

    llama.cpp loads all but a qwen2 whose heads * head_dim is not the hidden size.
    """
    sizes = _SIZES | overrides
    if ARCHITECTURES[arch].full_every:
        types = tuple((SLIDING, FULL)[layer % 2] for layer in range(sizes["num_hidden_layers"]))
        sizes = _SIZES | _SLIDING_SIZES | {"layer_types": types} | overrides
    return ModelConfig(architecture=arch, **sizes)


def tiny_weights(config: ModelConfig, seed: int) -> dict[str, Float32]:
    """HF name -> float32 noise, scaled by powers of two: attention looks around, logits have a std of about 2."""
    source = NoiseCheckpoint(config, seed)
    weights = {}
    for name in stored_shapes(config):
        factor = next(factor for ending, factor in _FACTORS.items() if name.endswith(ending))
        weights[name] = source.read(name) * np.float32(factor)
    return weights


def write_tiny_hf(directory: Path, config: ModelConfig, seed: int, dtype: str = "F32") -> dict[str, Float32]:
    """Writes the model as an HF directory; returns the weights before any rounding."""
    weights = tiny_weights(config, seed)
    write_hf_directory(directory, config, weights.items(), dtype)
    return weights


def write_tiny_gguf(path: Path, config: ModelConfig, seed: int, qtype: str = "F32") -> dict[str, Float32]:
    """Writes the model as a GGUF without vocabulary that llama.cpp loads; returns the weights before quantization.

    Matrices whose rows do not divide into blocks of `qtype` are stored as Q8_0 or else F16, vectors as F32.
    """
    weights = tiny_weights(config, seed)
    write_gguf(path, config, weights, qtype)
    return weights


def write_gguf(path: Path, config: ModelConfig, weights: dict[str, Float32], qtype: str = "F32") -> None:
    """Writes given HF-named float32 weights as `write_tiny_gguf` does."""
    writer = gguf_writer(path, config)
    for slot in model_slots(config):
        if slot.name in weights:
            kind = stored_type(slot.shape, qtype)
            data = quantized(gguf_order(weights[slot.name], slot, config), kind)
            writer.add_tensor(slot.gguf, data, raw_dtype=kind)
    close_gguf(writer)


def gguf_writer(path: Path, config: ModelConfig, skip: tuple[str, ...] = ()) -> gguf.GGUFWriter:
    """A gguf-py writer that holds the model's metadata; keys in `skip` (without the architecture) are left out."""
    writer = gguf.GGUFWriter(path, config.architecture)
    u32, f32 = writer.add_uint32, writer.add_float32
    rows: list[tuple[str, Any, Any]] = [
        ("block_count", u32, config.num_hidden_layers),
        ("context_length", u32, config.max_position_embeddings),
        ("embedding_length", u32, config.hidden_size),
        ("feed_forward_length", u32, config.intermediate_size),
        ("attention.head_count", u32, config.num_attention_heads),
        ("attention.head_count_kv", u32, config.num_key_value_heads),
        ("attention.key_length", u32, config.head_dim),
        ("attention.value_length", u32, config.head_dim),
        ("attention.layer_norm_rms_epsilon", f32, config.rms_norm_eps),
        ("rope.dimension_count", u32, config.head_dim),
        ("rope.freq_base", f32, config.rope_theta),
        ("vocab_size", u32, config.vocab_size),
    ]
    if config.layer_types:
        rows += [
            ("attention.sliding_window", u32, config.sliding_window),
            ("attention.sliding_window_pattern", *_pattern(writer, config.layer_types)),
            ("rope.freq_base_swa", f32, config.rope_local_theta),
        ]
    for key, add, value in rows:
        if key not in skip:
            add(f"{config.architecture}.{key}", value)
    writer.add_tokenizer_model("no_vocab")
    if config.bos_token_id is not None:
        writer.add_bos_token_id(config.bos_token_id)
    for key, token in zip(("eos", "eot", "eom"), config.eos_token_ids, strict=False):
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", token)
    return writer


def _pattern(writer: gguf.GGUFWriter, types: tuple[str, ...]) -> tuple[Any, Any]:
    """How to write which layers slide: as a period, or else one flag per layer."""
    period = (*types, FULL).index(FULL) + 1
    if every_nth_full(period, len(types)) == types:
        return writer.add_uint32, period
    return writer.add_array, [kind == SLIDING for kind in types]


def close_gguf(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored_type(shape: tuple[int, ...], qtype: str) -> gguf.GGMLQuantizationType:
    kinds = gguf.GGMLQuantizationType
    if len(shape) == 1:
        return kinds.F32
    fitting = (kind for kind in (kinds[qtype], kinds.Q8_0) if shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0)
    return next(fitting, kinds.F16)


def quantized(rows: Float32, kind: gguf.GGMLQuantizationType) -> npt.NDArray[Any]:
    """The bytes of the rows in ggml's own encoding (bf16 by gguf-py, the rest by ggml's C code)."""
    if kind.name == "F32":
        return rows
    if kind.name == "F16":
        return rows.astype(np.float16)
    return gguf.quantize(rows, kind) if kind.name == "BF16" else libgguf.quantize_rows(rows, int(kind))


def gguf_order(rows: Float32, slot: Slot, config: ModelConfig) -> Float32:
    """The row order of the GGUF: llama's q and k have the two halves of every head interleaved."""
    if slot.spec.permuted is None:
        return rows
    heads = config.num_attention_heads if slot.spec.permuted == "heads" else config.num_key_value_heads
    halves = rows.reshape(heads, 2, config.head_dim // 2, -1)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)
