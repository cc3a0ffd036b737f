"""The real Gemma 3 270M, a mix of Q5_0, Q8_0, Q4_K and Q6_K: dimensions, and every tensor against the gguf package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.slots import model_slots
from pipeline.model import FULL, SLIDING, ModelConfig
from tests.helpers.real_models import gemma3_270m

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path() -> Path:
    return gemma3_270m()


def test_dimensions(path: Path) -> None:
    assert GgufCheckpoint(path).config == ModelConfig(
        architecture="gemma3",
        hidden_size=640,
        num_hidden_layers=18,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        intermediate_size=2048,
        vocab_size=262144,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        tie_word_embeddings=True,
        max_position_embeddings=32768,
        bos_token_id=2,
        eos_token_ids=(1,),
        layer_types=((SLIDING,) * 5 + (FULL,)) * 3,
        sliding_window=512,
        rope_local_theta=10000.0,
    )


def test_every_tensor_equals_the_packages_reading(path: Path) -> None:
    source = GgufCheckpoint(path)
    names = {slot.gguf: slot.name for slot in model_slots(source.config)}
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert {tensor.tensor_type.name for tensor in tensors.values()} == {"F32", "Q5_0", "Q8_0", "Q4_K", "Q6_K"}
    assert {names[name] for name in tensors} | {"lm_head.weight"} == set(source.names())
    for name, tensor in tensors.items():
        rows = slice(0, 3000) if tensor.data.ndim > 1 else slice(None)
        expected = gguf.dequantize(tensor.data[rows], tensor.tensor_type)
        np.testing.assert_array_equal(source.read(names[name], rows), expected, strict=True)
