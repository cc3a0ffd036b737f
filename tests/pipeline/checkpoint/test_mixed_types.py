"""Sources as they are published: many tensor types in one file, whole models of 16 bits, and their known values."""

from __future__ import annotations

from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf.quants import _type_traits as dequantized_by_the_package
from safetensors.numpy import save_file

from pipeline.checkpoint.ggml_types import GGML_TYPES
from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.hf_checkpoint import HfCheckpoint
from pipeline.checkpoint.slots import Slot, model_slots, stored_shapes
from tests.helpers.tiny import (
    close_gguf,
    gguf_order,
    gguf_writer,
    quantized,
    tiny_config,
    tiny_weights,
    write_gguf,
    write_tiny_hf,
)

# one K-quant block a row; 30 matrices, so that every type stands somewhere
CONFIG = tiny_config(
    hidden_size=256,
    intermediate_size=256,
    vocab_size=40,
    head_dim=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_hidden_layers=4,
)
WEIGHTS = tiny_weights(CONFIG, 1)
NAMES = sorted(kind.name for kind in GGML_TYPES.values())


def test_every_type_that_the_package_dequantizes_is_read():
    assert set(NAMES) == {kind.name for kind in dequantized_by_the_package} | {"F32", "F16"}


def encoded(slot: Slot, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Rows in the type's encoding; where ggml has no quick encoder, codes that make every scale finite."""
    rows = gguf_order(WEIGHTS[slot.name], slot, CONFIG)
    if kind.name in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "NVFP4"):
        width = slot.shape[1] // gguf.GGML_QUANT_SIZES[kind][0] * gguf.GGML_QUANT_SIZES[kind][1]
        return np.random.default_rng(1).integers(0, 60, (slot.shape[0], width), np.uint8)
    return quantized(rows, kind)


def hf_order(rows: np.ndarray, slot: Slot) -> np.ndarray:
    if slot.spec.permuted is None:
        return rows
    return rows.reshape(-1, CONFIG.head_dim // 2, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def test_all_types_in_one_file(tmp_path: Path):
    writer, expected = gguf_writer(tmp_path / "m.gguf", CONFIG), {}
    matrices = [slot for slot in model_slots(CONFIG) if len(slot.shape) == 2]
    assert len(matrices) >= len(NAMES)
    for slot in model_slots(CONFIG):
        kind = gguf.GGMLQuantizationType["F32"]
        if slot in matrices:
            kind = gguf.GGMLQuantizationType[NAMES[matrices.index(slot) % len(NAMES)]]
        data = encoded(slot, kind) if slot in matrices else WEIGHTS[slot.name]
        writer.add_tensor(slot.gguf, data, raw_dtype=kind)
        rows = gguf.dequantize(data, kind) if slot in matrices else data
        expected[slot.name] = kind.name, hf_order(rows.astype(np.float32).reshape(slot.shape), slot)
    close_gguf(writer)
    source = GgufCheckpoint(tmp_path / "m.gguf")
    assert {source.type_name(name) for name in source.names()} == set(NAMES)
    for name, (kind, rows) in expected.items():
        assert source.type_name(name) == kind
        np.testing.assert_array_equal(source.read(name), rows, strict=True)
        np.testing.assert_array_equal(source.read(name, slice(3, 30)), rows[3:30], strict=True)


ROUNDINGS = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", ROUNDINGS)
def test_models_of_one_float_type(tmp_path: Path, arch, dtype):
    """Vectors of a GGUF are F32 always, those of safetensors are not."""
    config = tiny_config(arch, hidden_size=36, intermediate_size=40, vocab_size=20, head_dim=8, num_attention_heads=4)
    weights = tiny_weights(config, 2)
    rounded = {name: rows.astype(ROUNDINGS[dtype]) for name, rows in weights.items()}
    write_tiny_hf(tmp_path / "hf", config, 2)
    save_file(rounded, tmp_path / "hf/model.safetensors")
    write_gguf(tmp_path / "m.gguf", config, weights, dtype)
    ours, twin = GgufCheckpoint(tmp_path / "m.gguf"), HfCheckpoint(tmp_path / "hf")
    for name in stored_shapes(config):
        np.testing.assert_array_equal(twin.read(name), rounded[name].astype(np.float32), strict=True)
        values = weights[name] if weights[name].ndim == 1 else rounded[name].astype(np.float32)
        np.testing.assert_array_equal(ours.read(name), values, strict=True)
        assert twin.type_name(name) == dtype
        assert ours.type_name(name) == ("F32" if weights[name].ndim == 1 else dtype)
