"""gemma3 from both kinds of source: norms, layer types, windows, RoPE bases, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.hf_checkpoint import HfCheckpoint
from pipeline.checkpoint.hf_config import config_from_dict, hf_config_dict
from pipeline.checkpoint.noise import NoiseCheckpoint, write_hf_checkpoint, write_hf_directory
from pipeline.checkpoint.slots import plus_one_names
from pipeline.errors import CheckpointError, MismatchError
from pipeline.evaluate.llama import LlamaModel
from pipeline.model import FULL, SLIDING, ModelConfig
from tests.helpers.gguf_bytes import ARRAY, BOOL, F32, STRING, U32, GgufBytes, model_gguf
from tests.helpers.tiny import tiny_config, tiny_weights, write_gguf, write_tiny_gguf

SMALL = {"hidden_size": 32, "intermediate_size": 40, "vocab_size": 20, "head_dim": 6, "num_hidden_layers": 7}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
CONFIG = tiny_config("gemma3", **SMALL, **HEADS)


def bf16_twins(folder: Path, config: ModelConfig) -> tuple[GgufCheckpoint, HfCheckpoint]:
    """A BF16 directory, and a GGUF of the gains float32(1 + w) that llama.cpp's converter would write."""
    stored = {name: rows.astype(ml_dtypes.bfloat16) for name, rows in tiny_weights(config, 3).items()}
    gains = plus_one_names(config)
    weights = {name: rows.astype(np.float32) for name, rows in stored.items()}
    for name in gains:
        stored[name] = (weights[name] - np.float32(1)).astype(ml_dtypes.bfloat16)
        weights[name] = stored[name].astype(np.float32) + np.float32(1)
    write_hf_directory(folder / "hf", config, weights.items(), "BF16")
    write_gguf(folder / "m.gguf", config, weights)
    on_disk = safetensors.numpy.load_file(folder / "hf/model.safetensors")
    assert all(np.array_equal(on_disk[name], rows) for name, rows in stored.items())
    return GgufCheckpoint(folder / "m.gguf"), HfCheckpoint(folder / "hf")


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("window", [8, 600])
def test_twins_are_equal(tmp_path: Path, tied, window):
    config = tiny_config("gemma3", **SMALL, **HEADS, tie_word_embeddings=tied, sliding_window=window)
    ours, twin = bf16_twins(tmp_path, config)
    assert ours.config == twin.config == config
    assert sorted(ours.names()) == sorted(twin.names())
    for name in ours.names():
        np.testing.assert_array_equal(ours.read(name), twin.read(name), strict=True)
        np.testing.assert_array_equal(twin.read(name, slice(3, 5)), twin.read(name)[3:5])


def test_norms_read_as_gains_and_only_norms(tmp_path: Path):
    ours, twin = bf16_twins(tmp_path, CONFIG)
    raw = safetensors.numpy.load_file(tmp_path / "hf/model.safetensors")
    shifted = {name for name in raw if not np.array_equal(twin.read(name), raw[name].astype(np.float32))}
    layers = [name for name in ours.names() if name.endswith("norm.weight")]
    assert shifted == set(layers) and len(layers) == 7 * 6 + 1


def test_noise_directory_reads_back_as_the_noise(tmp_path: Path):
    source = NoiseCheckpoint(CONFIG, 5)
    write_hf_checkpoint(tmp_path, source, "F32")
    twin = HfCheckpoint(tmp_path)
    assert twin.config == CONFIG
    for name in source.names():
        np.testing.assert_array_equal(twin.read(name), source.read(name), strict=True)


def test_bf16_bits_of_gains_are_shifted_too(tmp_path: Path):
    gains = {name: rows.astype(ml_dtypes.bfloat16).view(np.uint16) for name, rows in tiny_weights(CONFIG, 1).items()}
    write_hf_directory(tmp_path, CONFIG, gains.items(), "F32")
    name = "model.layers.0.self_attn.q_norm.weight"
    np.testing.assert_array_equal(HfCheckpoint(tmp_path).read(name), gains[name].view(ml_dtypes.bfloat16))


@pytest.mark.parametrize("gain", [2.0**-16, -(2.0**-16), 2.0**23, 0.0, -3.0])
def test_gain_that_its_file_can_hold(tmp_path: Path, gain):
    weights = tiny_weights(CONFIG, 1)
    weights["model.norm.weight"][5] = gain
    write_hf_directory(tmp_path, CONFIG, weights.items(), "F32")
    assert HfCheckpoint(tmp_path).read("model.norm.weight")[5] == gain


@pytest.mark.parametrize("gain", [2.0**-26, 2.0**24 + 2])
def test_gain_that_its_file_cannot_hold_is_refused(tmp_path: Path, gain):
    weights = tiny_weights(CONFIG, 1)
    weights["model.norm.weight"][5] = gain
    with pytest.raises(
        MismatchError, match=r"model\.norm\.weight, element 5: gain does not survive being stored as gain - 1"
    ):
        write_hf_directory(tmp_path, CONFIG, weights.items(), "F32")
    assert not list(tmp_path.iterdir())


def read(**changes: Any) -> ModelConfig:
    data = hf_config_dict(CONFIG) | changes
    return config_from_dict({key: value for key, value in data.items() if value != "absent"}, Path("config.json"))


SIXTH = (SLIDING,) * 5 + (FULL, SLIDING)
NESTED = {FULL: {"rope_theta": 5e5, "rope_type": "default"}, SLIDING: {"rope_theta": 2e4, "rope_type": "default"}}
BASES = {"rope_theta": "absent", "rope_local_base_freq": "absent"}
READS = [
    ({}, CONFIG.layer_types, (1e6, 1e4, 8)),
    ({"layer_types": "absent"}, SIXTH, (1e6, 1e4, 8)),
    ({"layer_types": "absent", "sliding_window_pattern": 3}, (SLIDING, SLIDING, FULL) * 2 + (SLIDING,), (1e6, 1e4, 8)),
    ({"layer_types": "absent", "_sliding_window_pattern": 2}, CONFIG.layer_types, (1e6, 1e4, 8)),
    ({"layer_types": "absent", "sliding_window_pattern": 1}, (), (1e6, 0, 0)),
    ({"layer_types": [FULL] * 7}, (), (1e6, 0, 0)),
    ({**BASES, "layer_types": "absent", "sliding_window": "absent"}, SIXTH, (1e6, 1e4, 4096)),
    ({**BASES, "rope_parameters": NESTED}, CONFIG.layer_types, (5e5, 2e4, 8)),
    ({"rope_theta": 5e5, "rope_local_base_freq": 2e4, "rope_parameters": NESTED}, CONFIG.layer_types, (5e5, 2e4, 8)),
    ({**BASES, "rope_parameters": {FULL: {"rope_theta": 5e5}}}, CONFIG.layer_types, (5e5, 1e4, 8)),
    ({"rope_theta": "absent", "rope_parameters": {"rope_theta": 5e5}}, CONFIG.layer_types, (5e5, 1e4, 8)),
    ({"rope_scaling": {"rope_type": "default"}}, CONFIG.layer_types, (1e6, 1e4, 8)),
]


@pytest.mark.parametrize(("changes", "types", "numbers"), READS)
def test_config_reads(changes, types, numbers):
    config = read(**changes)
    assert config.layer_types == types
    assert (config.rope_theta, config.rope_local_theta, config.sliding_window) == numbers


def test_config_defaults_are_those_of_the_architecture():
    config = read(
        head_dim="absent", tie_word_embeddings="absent", query_pre_attn_scalar=256, hidden_activation="absent"
    )
    assert (config.head_dim, config.tie_word_embeddings) == (256, True)


SCALED = {FULL: {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0}, SLIDING: {"rope_theta": 1e4}}
REFUSED = [
    ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "rope_scaling: RoPE scaling .*found linear"),
    ({"rope_parameters": SCALED}, "rope_parameters: RoPE scaling .*found linear"),
    ({"rope_parameters": NESTED}, "rope_parameters: contradicts rope_theta"),
    ({"rope_theta": 5e5, "rope_parameters": NESTED}, "rope_parameters: contradicts rope_local_base_freq"),
    ({"rope_parameters": {FULL: 5}}, "full_attention: wrong type"),
    ({"layer_types": [SLIDING]}, r"layer_types: not one type per layer \(expected 7, found 1\)"),
    ({"layer_types": ["chunked_attention"] * 7}, "layer_types: unsupported attention .*found chunked_attention"),
    ({"layer_types": "absent", "sliding_window_pattern": 0}, "sliding_window_pattern: missing or impossible"),
    ({"layer_types": "absent", "num_hidden_layers": 1 << 30}, "num_hidden_layers: too many layers"),
    ({"sliding_window": 0}, "sliding_window: missing or impossible value"),
    ({"query_pre_attn_scalar": 168}, "query_pre_attn_scalar: not supported by the engines .*found 168"),
    ({"query_pre_attn_scalar": "absent"}, "query_pre_attn_scalar: .*found 256"),
    ({"hidden_activation": "silu"}, "hidden_activation: unsupported activation .*gelu_pytorch_tanh, found silu"),
    ({"hidden_act": "gelu"}, "hidden_act: unsupported activation"),
    ({"final_logit_softcapping": 30.0}, "final_logit_softcapping: not supported"),
    ({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {}}, "text_config: multimodal models"),
    ({"model_type": "gemma3"}, "model_type: unknown architecture .*found gemma3"),
    ({"model_type": "qwen3"}, r"model_type: contradicts architectures \(expected gemma3_text, found qwen3\)"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_config_refused(changes, message):
    with pytest.raises(CheckpointError, match=f"config.json: {message}") as caught:
        read(**changes)
    assert "\n" not in str(caught.value)


def gguf(folder: Path, **keys: Any) -> ModelConfig:
    parts: GgufBytes = model_gguf(CONFIG, tiny_weights(CONFIG, 1))
    parts.keys["gemma3.attention.sliding_window"] = (U32, 8)
    parts.keys |= {f"gemma3.{key.replace('__', '.')}": value for key, value in keys.items()}
    return GgufCheckpoint(parts.write(folder / "m.gguf")).config


FLAGS = [True, False, False, True, True, False, True]
GGUF_READS = [
    ({}, SIXTH, 1e4),
    ({"attention__sliding_window_pattern": (U32, 2)}, CONFIG.layer_types, 1e4),
    ({"attention__sliding_window_pattern": (ARRAY, (BOOL, FLAGS))}, tuple((FULL, SLIDING)[f] for f in FLAGS), 1e4),
    ({"rope__freq_base_swa": (F32, 2e4)}, SIXTH, 2e4),
    ({"attention__sliding_window": (U32, 0)}, (), 0),
    ({"attention__sliding_window_pattern": (U32, 1)}, (), 0),
    ({"attention__sliding_window_pattern": (ARRAY, (BOOL, [False] * 7))}, (), 0),
    ({"final_logit_softcapping": (F32, 0.0), "rope__scaling__type": (STRING, "none")}, SIXTH, 1e4),
]


@pytest.mark.parametrize(("keys", "types", "local"), GGUF_READS)
def test_gguf_reads(tmp_path: Path, keys, types, local):
    config = gguf(tmp_path, **keys)
    assert (config.layer_types, config.rope_local_theta, config.rope_theta) == (types, local, 1e6)
    assert config.sliding_window == (8 if types else 0)


GGUF_REFUSED = [
    (
        {"rope__scaling__type": (STRING, "linear"), "rope__scaling__factor": (F32, 8.0)},
        "rope.scaling.type: .*found linear",
    ),
    ({"rope__scaling__factor": (F32, 8.0)}, "rope.scaling.factor: not supported"),
    ({"final_logit_softcapping": (F32, 30.0)}, "final_logit_softcapping: not supported"),
    ({"attn_logit_softcapping": (F32, 50.0)}, "attn_logit_softcapping: not supported"),
    ({"attention__key_length_swa": (U32, 4)}, "attention.key_length_swa: not supported"),
    ({"attention__sliding_window_pattern": (U32, 0)}, "attention.sliding_window_pattern: missing or impossible"),
    (
        {"attention__sliding_window_pattern": (ARRAY, (BOOL, FLAGS[1:]))},
        "sliding_window_pattern: not one flag per layer",
    ),
    ({"attention__sliding_window": (F32, 8.0)}, "attention.sliding_window: missing or impossible"),
    ({"block_count": (U32, 1 << 30)}, "block_count: too many layers"),
]


@pytest.mark.parametrize(("keys", "message"), GGUF_REFUSED)
def test_gguf_refused(tmp_path: Path, keys, message):
    with pytest.raises(CheckpointError, match=rf"m\.gguf: gemma3\..*{message}"):
        gguf(tmp_path, **keys)


@pytest.mark.parametrize("types", [(FULL, SLIDING, SLIDING), (SLIDING, FULL, FULL), (SLIDING,), (SLIDING, FULL)])
def test_any_order_of_layers_in_both_sources(tmp_path: Path, types):
    config = tiny_config("gemma3", **SMALL | HEADS | {"num_hidden_layers": len(types)}, layer_types=types)
    ours, twin = bf16_twins(tmp_path, config)
    assert ours.config == twin.config == config


def test_llama_reads_the_same_layer_types(tmp_path: Path):
    """Logits change with each of the keys, so llama.cpp reads all of them: which layers slide, how far, on what base."""
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    logits = {}
    for key, change in {
        "as it is": {},
        "another period": {"layer_types": (SLIDING, SLIDING)},
        "another window": {"sliding_window": 16},
        "another base": {"rope_local_theta": 3e4},
    }.items():
        write_tiny_gguf(tmp_path / "m.gguf", tiny_config("gemma3", **sizes | change), 1)
        with LlamaModel(tmp_path / "m.gguf", 64) as model:
            logits[key] = model.logits(list(range(5, 45)))
    differ = {key: np.abs(rows - logits["as it is"]).max(axis=1) > 1e-3 for key, rows in logits.items()}
    assert not differ["as it is"].any()
    # tokens before the window's end see the same in layers of either type, but for the RoPE base
    assert differ["another base"][1:].all() and differ["another period"][1:].all()
    assert not differ["another window"][:8].any() and differ["another window"][8:].all()


@pytest.mark.parametrize("qtype", ["Q4_K", "Q5_0", "Q6_K", "Q8_0"])
def test_quantized(tmp_path: Path, qtype):
    config = tiny_config("gemma3", hidden_size=256, head_dim=32)
    weights = write_tiny_gguf(tmp_path / "m.gguf", config, 1, qtype)
    source = GgufCheckpoint(tmp_path / "m.gguf")
    name = "model.layers.1.mlp.gate_proj.weight"
    assert source.type_name(name) == qtype and np.abs(source.read(name) - weights[name]).mean() < 0.01
