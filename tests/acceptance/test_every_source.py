"""Any quantization in: all of gguf's types in one file, floats of every width, Gemma from both kinds of source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import libgguf
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from pipeline.checkpoint.slots import model_slots
from tests.helpers.integer_sets import compile_directly, small_config, write_source
from tests.helpers.published import matrix_bytes, quantized, rule_of, scales_of
from tests.helpers.tiny import Float32, close_gguf, gguf_writer, tiny_config, tiny_weights

CONFIG = tiny_config(
    "qwen2",
    hidden_size=256,
    num_attention_heads=4,
    intermediate_size=512,
    vocab_size=64,
    num_hidden_layers=4,
    bos_token_id=None,
    eos_token_ids=(),
)
KINDS = [
    kind
    for kind in gguf.GGMLQuantizationType
    if kind in gguf.quants._type_traits or kind.name in ("F32", "F16")  # every type that gguf-py dequantizes
]


def encoded(rows: Float32, kind: gguf.GGMLQuantizationType) -> npt.NDArray[Any]:
    """By gguf-py or ggml where one of them has an encoder, else codes whose scales are finite."""
    if kind.name in ("F32", "F16"):
        return rows.astype(np.float32 if kind.name == "F32" else np.float16)
    for encoder in (gguf.quantize, lambda rows, kind: libgguf.quantize_rows(rows, int(kind))):
        try:
            return encoder(rows, kind)
        except (NotImplementedError, ValueError, RuntimeError):
            continue
    block, size = gguf.GGML_QUANT_SIZES[kind]
    shape = (len(rows), rows.shape[1] // block * size)
    return np.random.default_rng(1).integers(0, 60, shape, np.uint8)


def write_mixed(path: Path) -> dict[str, Float32]:
    """A GGUF with another type for every matrix; HF name -> its values, as gguf-py dequantizes them."""
    weights, values, writer = tiny_weights(CONFIG, 1), {}, gguf_writer(path, CONFIG)
    matrices = [slot for slot in model_slots(CONFIG) if len(slot.shape) == 2]
    for index, slot in enumerate(matrices):
        kind = KINDS[index % len(KINDS)]
        raw = encoded(weights[slot.name], kind)
        writer.add_tensor(slot.gguf, raw, raw_dtype=kind)
        values[slot.name] = np.asarray(gguf.dequantize(raw, kind), np.float32).reshape(slot.shape)
    for slot in model_slots(CONFIG):
        if len(slot.shape) == 1:
            writer.add_tensor(slot.gguf, weights[slot.name])
    close_gguf(writer)
    return values


def test_all_types_of_gguf_mixed_in_one_file(tmp_path: Path) -> None:
    values, rule = write_mixed(tmp_path / "mixed.gguf"), rule_of("s8")
    assert len(KINDS) >= 20 and len(values) >= len(KINDS)
    engines = compile_directly(
        tmp_path / "mixed.gguf", tmp_path / "engines", weight_type="s8", post_weight_type="s8", corrections=0
    )
    for name, held in values.items():
        if name == "model.embed_tokens.weight":
            assert engines[f"{name}.bfloat16.bin"] == held.astype(ml_dtypes.bfloat16).tobytes()
            continue
        layer = name.split(".")[2] if ".layers." in name else None
        file = "qwen2_post.axmodel" if layer is None else f"qwen2_p8_l{layer}_together.axmodel"
        scales = scales_of(held, rule)
        assert engines[file].count(matrix_bytes(quantized(held, scales, rule), scales, rule)) == 1, name


def rounded(values: Float32, dtype: str) -> Float32:
    types = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
    return values.astype(types[dtype]).astype(np.float32)


def test_floats_of_every_width_from_either_kind_of_source(tmp_path: Path) -> None:
    """GGUF F32, F16, BF16, and safetensors of weights that were rounded likewise."""
    config = small_config("llama", num_hidden_layers=1)
    for dtype in ("F32", "F16", "BF16"):
        weights = tiny_weights(config, 1)
        held = {name: rounded(values, dtype) if values.ndim == 2 else values for name, values in weights.items()}
        flags = {"weight_type": "s4", "post_weight_type": "s8", "layout_seed": 3}
        first = write_source(tmp_path / f"{dtype}.gguf", config, weights, dtype)
        second = write_source(tmp_path / dtype, config, held)
        engines = [
            compile_directly(source, tmp_path / f"{dtype}-{index}", **flags)
            for index, source in enumerate((first, second))
        ]
        assert engines[0] == engines[1], dtype


@pytest.mark.parametrize("flags", [{"weight_type": "s8", "fold_norms": True}, {"weight_type": "bf16"}])
def test_gemma_from_gguf_and_from_a_directory_is_the_same(tmp_path: Path, flags: dict[str, Any]) -> None:
    """The directory stores gains minus one; values exact in bf16, so that adding and subtracting one loses nothing."""
    config = replace(small_config("gemma3"), tie_word_embeddings=True)
    weights = {name: rounded(values, "BF16") for name, values in tiny_weights(config, 1).items()}
    sources = [write_source(tmp_path / name, config, weights) for name in ("a.gguf", "b")]
    engines = [compile_directly(path, tmp_path / f"{path.name}-engines", **flags) for path in sources]
    assert engines[0] == engines[1]
    embedding = weights["model.embed_tokens.weight"] * np.sqrt(np.float32(config.hidden_size))
    assert engines[0]["model.embed_tokens.weight.bfloat16.bin"] == embedding.astype(ml_dtypes.bfloat16).tobytes()
