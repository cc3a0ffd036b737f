"""Hugging Face directories: configuration, one file or shards, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipeline.checkpoint.hf_checkpoint import HfCheckpoint
from pipeline.checkpoint.hf_config import config_from_dict, hf_config_dict, read_hf_config
from pipeline.checkpoint.open import open_checkpoint, source_files
from pipeline.checkpoint.source_file import CheckpointWarning
from pipeline.errors import CheckpointError, MissingFileError
from tests.helpers.tiny import tiny_config, tiny_weights, write_tiny_gguf, write_tiny_hf

CONFIG = tiny_config(
    "qwen3",
    hidden_size=32,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    intermediate_size=40,
    vocab_size=20,
)
WEIGHTS = tiny_weights(CONFIG, 1)
INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def read(**changes: Any):
    data = hf_config_dict(CONFIG) | changes
    return config_from_dict({key: value for key, value in data.items() if value != "absent"}, Path("config.json"))


def write_sharded(folder: Path, weights: dict[str, np.ndarray] = WEIGHTS, config=CONFIG) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    names = list(weights)
    for shard, part in ((FIRST, names[::2]), (SECOND, names[1::2])):
        save_file({name: weights[name] for name in part}, folder / shard)
    (folder / "config.json").write_text(json.dumps(hf_config_dict(config)))
    weight_map = {name: (FIRST, SECOND)[i % 2] for i, name in enumerate(names)}
    write_index(folder, weight_map)
    return weight_map


def write_index(folder: Path, weight_map: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_single_file(tmp_path: Path, dtype):
    write_tiny_hf(tmp_path, CONFIG, 1, dtype)
    source = open_checkpoint(tmp_path)
    assert source.config == CONFIG and source_files(tmp_path) == [
        tmp_path / "config.json",
        tmp_path / "model.safetensors",
    ]
    for name, values in WEIGHTS.items():
        assert source.type_name(name) == dtype
        np.testing.assert_allclose(source.read(name), values, rtol=0 if dtype == "F32" else 2**-8)
        np.testing.assert_array_equal(source.read(name, slice(3, 6)), source.read(name)[3:6])


def test_sharded(tmp_path: Path):
    write_sharded(tmp_path)
    source = HfCheckpoint(tmp_path)
    assert source.config == CONFIG and sorted(source.names()) == sorted(WEIGHTS)
    assert [path.name for path in source_files(tmp_path)] == ["config.json", INDEX, FIRST, SECOND]
    for name, values in WEIGHTS.items():
        np.testing.assert_array_equal(source.read(name), values)


def test_tied_head(tmp_path: Path):
    config = tiny_config("qwen2", num_hidden_layers=1, tie_word_embeddings=True)
    write_tiny_hf(tmp_path, config, 1)
    source = HfCheckpoint(tmp_path)
    assert source.names()[-1] == "lm_head.weight" and source.config == config
    np.testing.assert_array_equal(source.read("lm_head.weight"), source.read("model.embed_tokens.weight"))


def test_stored_head_wins_over_the_tie(tmp_path: Path):
    write_tiny_hf(tmp_path, CONFIG, 1)
    (tmp_path / "config.json").write_text(json.dumps(hf_config_dict(CONFIG) | {"tie_word_embeddings": True}))
    source = HfCheckpoint(tmp_path)
    assert not source.config.tie_word_embeddings
    np.testing.assert_array_equal(source.read("lm_head.weight"), WEIGHTS["lm_head.weight"])


def test_unknown_tensors_are_listed_but_recomputed_buffers_are_not(tmp_path: Path):
    extra = {
        "model.layers.0.extra.weight": np.ones(3, np.float32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(3),
    }
    write_sharded(tmp_path, WEIGHTS | extra)
    assert sorted(HfCheckpoint(tmp_path).names()) == sorted([*WEIGHTS, "model.layers.0.extra.weight"])


def without(name: str) -> dict[str, np.ndarray]:
    return {key: value for key, value in WEIGHTS.items() if key != name}


def test_missing_tensor_and_wrong_shape_are_named(tmp_path: Path):
    name = "model.layers.1.mlp.up_proj.weight"
    write_sharded(tmp_path, without(name))
    with pytest.raises(CheckpointError, match=rf"{name}: tensor is missing \(expected \[40, 32\]\)"):
        HfCheckpoint(tmp_path)
    write_sharded(tmp_path, without(name) | {name: np.ones((32, 40), np.float32)})
    with pytest.raises(CheckpointError, match=rf"{name}: shape .*expected \[40, 32\], found \[32, 40\]"):
        HfCheckpoint(tmp_path)


def test_missing_head_of_an_untied_model(tmp_path: Path):
    write_sharded(tmp_path, without("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight: tensor is missing"):
        HfCheckpoint(tmp_path)


@pytest.mark.parametrize("shard", [FIRST, SECOND])
def test_missing_shard_is_named(tmp_path: Path, shard):
    write_sharded(tmp_path)
    (tmp_path / shard).unlink()
    with pytest.raises(MissingFileError, match=f"{shard}: shard is missing"):
        HfCheckpoint(tmp_path)


def test_tensor_in_two_shards(tmp_path: Path):
    write_sharded(tmp_path)
    save_file(WEIGHTS, tmp_path / SECOND)
    with pytest.raises(CheckpointError, match=f"{SECOND}: .*duplicate tensor, also in {FIRST}"):
        HfCheckpoint(tmp_path)


def test_index_that_disagrees_with_the_shards(tmp_path: Path):
    weight_map = write_sharded(tmp_path)
    name = "model.norm.weight"
    write_index(tmp_path, weight_map | {name: FIRST if weight_map[name] == SECOND else SECOND})
    with pytest.raises(CheckpointError, match=f"{name}: tensor is not where the index says"):
        HfCheckpoint(tmp_path)
    write_index(tmp_path, {key: value for key, value in weight_map.items() if key != name})
    with pytest.raises(CheckpointError, match=f"{name}: tensor is not in the index"):
        HfCheckpoint(tmp_path)
    write_index(tmp_path, weight_map | {"ghost": FIRST})
    with pytest.raises(CheckpointError, match=r"ghost: tensor is not where the index says .*found in no shard"):
        HfCheckpoint(tmp_path)


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/hosts", "a/b.safetensors", "", "..", "config.json", 7, None]
)
def test_index_that_leads_elsewhere(tmp_path: Path, name):
    write_index(tmp_path, write_sharded(tmp_path) | {"model.norm.weight": name})
    with pytest.raises(CheckpointError, match=r"weight_map\.model\.norm\.weight: not the name of a safetensors file"):
        HfCheckpoint(tmp_path)


@pytest.mark.parametrize("weight_map", [{}, [], None, "x"])
def test_index_without_a_map(tmp_path: Path, weight_map):
    write_sharded(tmp_path)
    write_index(tmp_path, weight_map)
    with pytest.raises(CheckpointError, match="weight_map: missing or empty"):
        HfCheckpoint(tmp_path)


def test_paths_that_lead_nowhere(tmp_path: Path):
    with pytest.raises(MissingFileError, match=r"config\.json: no such file"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(hf_config_dict(CONFIG)))
    with pytest.raises(MissingFileError, match=r"model\.safetensors: no such file"):
        open_checkpoint(tmp_path)
    with pytest.raises(MissingFileError, match=r"m\.gguf: no such file"):
        open_checkpoint(tmp_path / "m.gguf")
    write_tiny_hf(tmp_path, CONFIG, 1)
    with pytest.raises(CheckpointError, match="name its directory"):
        open_checkpoint(tmp_path / "model.safetensors")


def test_adapter_is_no_base_model(tmp_path: Path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"adapter_config\.json: an adapter, not a base model"):
        open_checkpoint(tmp_path)


def test_gguf_is_opened_by_content_and_is_its_only_file(tmp_path: Path):
    write_tiny_gguf(tmp_path / "blob", CONFIG, 1)
    assert open_checkpoint(str(tmp_path / "blob")).config == CONFIG and source_files(tmp_path / "blob") == [
        tmp_path / "blob"
    ]


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"head_dim": "absent"}, "head_dim", 8),
        ({"num_key_value_heads": "absent"}, "num_key_value_heads", 4),
        ({"rope_theta": "absent"}, "rope_theta", 10000.0),
        ({"rope_theta": "absent", "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, "rope_theta", 5e5),
        ({"rope_theta": 5e5, "rope_parameters": {"rope_theta": 500000}}, "rope_theta", 5e5),
        ({"rope_theta": 1000000}, "rope_theta", 1e6),
        ({"rope_scaling": {"rope_type": "default"}}, "rope_theta", 10000.0),
        ({"tie_word_embeddings": "absent"}, "tie_word_embeddings", False),
        ({"rms_norm_eps": "absent"}, "rms_norm_eps", 1e-6),
        ({"eos_token_id": [3, 9]}, "eos_token_ids", (3, 9)),
        ({"eos_token_id": None}, "eos_token_ids", ()),
        ({"bos_token_id": None}, "bos_token_id", None),
        ({"architectures": "absent"}, "architecture", "qwen3"),
        ({"model_type": "absent"}, "architecture", "qwen3"),
        ({"layer_types": ["full_attention", "full_attention"]}, "num_hidden_layers", 2),
        ({"use_sliding_window": True, "sliding_window": 512}, "layer_types", ()),
        ({"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4096}, "layer_types", ()),
        ({"final_logit_softcapping": 0.0, "use_bidirectional_attention": False}, "num_hidden_layers", 2),
    ],
)
def test_config_reads(changes, field, value):
    assert getattr(read(**changes), field) == value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architectures": ["GemmaForCausalLM"]},
            "architectures: unknown architecture .*Gemma3ForCausalLM, found GemmaForCausalLM",
        ),
        ({"architectures": "absent", "model_type": "phi3"}, "model_type: unknown architecture .*found phi3"),
        ({"architectures": "absent", "model_type": ["qwen3"]}, r"model_type: unknown architecture .*found \['qwen3'\]"),
        ({"architectures": [{}]}, "architectures: unknown architecture"),
        ({"architectures": "absent", "model_type": "absent"}, "architectures: no architecture is named"),
        ({"architectures": ["LlamaForCausalLM"]}, "model_type: contradicts architectures .*llama, found qwen3"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling: RoPE scaling .*found llama3"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling: RoPE scaling .*found linear"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling: RoPE scaling .*found unnamed"),
        ({"rope_scaling": 2.0}, "rope_scaling: wrong type"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters: RoPE scaling .*found yarn"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "rope_parameters: RoPE scaling"),
        ({"rope_parameters": {"rope_theta": 5e5}}, "rope_parameters: contradicts rope_theta"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: partial RoPE"),
        ({"hidden_act": "gelu"}, "hidden_act: unsupported activation .*silu, found gelu"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: packed weights"),
        ({"use_sliding_window": True}, "use_sliding_window: "),
        ({"use_sliding_window": True, "sliding_window": 511}, "use_sliding_window: "),
        (
            {"layer_types": ["sliding_attention", "chunked_attention"], "sliding_window": 512},
            ".*found chunked_attention",
        ),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping: not supported by the engines .*found 30.0"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: not supported"),
        ({"query_pre_attn_scalar": 8}, r"query_pre_attn_scalar: not supported .*expected 6, found 8"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention: not supported"),
        ({"text_config": {}}, "text_config: multimodal models are not supported"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types: .*found sliding_attention"),
        ({"hidden_size": "absent"}, r"hidden_size: missing .*\(expected a positive integer\)$"),
        ({"hidden_size": 32.0}, "hidden_size: .*found 32.0"),
        ({"hidden_size": True}, "hidden_size: .*found True"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: .*found 0"),
        ({"vocab_size": 1 << 40}, "vocab_size: "),
        ({"num_key_value_heads": 3}, "num_key_value_heads: heads do not divide"),
        ({"head_dim": 7}, "head_dim: odd head_dim"),
        ({"rms_norm_eps": -1e-5}, "rms_norm_eps: "),
        ({"rope_theta": "10000"}, "rope_theta: "),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings: wrong type"),
        ({"eos_token_id": "2"}, "eos_token_id: not token ids"),
        ({"eos_token_id": [2, True]}, "eos_token_id: not token ids"),
    ],
)
def test_config_refused(changes, message):
    with pytest.raises(CheckpointError, match=f"config.json: {message}") as caught:
        read(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("token", [-1, 20, 1 << 40])
def test_special_token_outside_the_vocabulary_is_dropped(token):
    with pytest.warns(CheckpointWarning, match=rf"eos_token_id: token id {token} is ignored.* 20 tokens"):
        assert read(eos_token_id=[token, 19]).eos_token_ids == (19,)
    with pytest.warns(CheckpointWarning, match=rf"bos_token_id: token id {token} is ignored"):
        assert read(bos_token_id=token).bos_token_id is None


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_config_that_is_no_object(tmp_path: Path, text):
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"not JSON|not a JSON object"):
        read_hf_config(tmp_path / "config.json")


def test_more_layers_than_the_file_can_hold(tmp_path: Path):
    write_sharded(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(hf_config_dict(CONFIG) | {"num_hidden_layers": 1 << 30}))
    with pytest.raises(CheckpointError, match=r"more layers than tensors .*expected 1073741824 layers"):
        HfCheckpoint(tmp_path)
