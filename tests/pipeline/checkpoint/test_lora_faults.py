"""Every adapter that is refused, in both formats: one line that names file and tensor, key or field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pipeline.checkpoint.lora import adapter_files, merge_adapter
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.open import open_checkpoint
from pipeline.errors import CheckpointError, EngineSetError, MissingFileError
from tests.helpers.adapters import adapter_factors, write_gguf_adapter, write_peft_adapter
from tests.helpers.tiny import tiny_config, write_tiny_gguf, write_tiny_hf

SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 40, "vocab_size": 20, "head_dim": 8}
CONFIG = tiny_config(num_attention_heads=4, num_key_value_heads=2, **SMALL)
TIED = tiny_config(num_attention_heads=4, num_key_value_heads=2, **SMALL, tie_word_embeddings=True)
BASE = NoiseCheckpoint(CONFIG, 1)
Q, GATE = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.gate_proj.weight"


def refusal(path: Path, kind: type[EngineSetError] = CheckpointError, scale: float = 1.0, base=BASE) -> str:
    with pytest.raises(kind) as caught:
        merge_adapter(base, path, scale)
    line = str(caught.value)
    assert line.startswith(str(path)) and "\n" not in line
    return line.removeprefix(f"{path}").lstrip("/: ")


def check(line: str, message: str) -> None:
    assert pytest.RaisesExc(CheckpointError, match=message).matches(CheckpointError(line)), line


def factors(*modules: str):
    return adapter_factors(CONFIG, modules or ("q_proj", "gate_proj"))


GGUF_KEYS = [
    ({"general__type": "model"}, r"general\.type: not an adapter \(expected adapter, found model\)"),
    ({"general__type": None}, r"general\.type: not an adapter \(expected adapter, found model\)"),
    ({"adapter__type": "control_vector"}, r"adapter\.type: not a LoRA adapter .*found control_vector"),
    ({"adapter__type": None}, r"adapter\.type: not a LoRA adapter"),
    (
        {"general__architecture": "qwen3"},
        r"general\.architecture: adapter of another architecture .*llama, found qwen3",
    ),
    ({"adapter__lora__alpha": None}, r"adapter\.lora\.alpha: missing or impossible value"),
    ({"adapter__lora__alpha": 0.0}, r"adapter\.lora\.alpha: missing or impossible value \(expected > 0, found 0.0\)"),
    ({"adapter__lora__alpha": float("nan")}, r"adapter\.lora\.alpha: missing or impossible"),
    ({"adapter__lora__alpha": "8"}, r"adapter\.lora\.alpha: missing or impossible"),
    ({"adapter__alora__invocation_tokens": 3.0}, r"adapter\.alora\.invocation_tokens: an adapter that waits"),
]


@pytest.mark.parametrize(("keys", "message"), GGUF_KEYS)
def test_gguf_key_refused(tmp_path: Path, keys, message):
    check(refusal(write_gguf_adapter(tmp_path / "a.gguf", CONFIG, factors(), **keys)), message)


PEFT_FIELDS = [
    ({"peft_type": "IA3"}, "adapter_config.json: peft_type: not a LoRA adapter .*found IA3"),
    ({"peft_type": None}, "peft_type: not a LoRA adapter"),
    ({"bias": "all"}, "bias: not supported by the engines .*found all"),
    ({"fan_in_fan_out": True}, "fan_in_fan_out: not supported"),
    ({"use_dora": True}, "use_dora: not supported"),
    ({"lora_bias": True}, "lora_bias: not supported"),
    ({"use_qalora": True}, "use_qalora: not supported"),
    ({"modules_to_save": ["lm_head"]}, r"modules_to_save: not supported .*found \['lm_head'\]"),
    ({"layer_replication": [[0, 2]]}, "layer_replication: not supported"),
    ({"trainable_token_indices": [5]}, "trainable_token_indices: not supported"),
    ({"target_parameters": ["experts.w"]}, "target_parameters: not supported"),
    ({"init_lora_weights": "pissa_niter_16"}, "init_lora_weights: belongs to a base model .*found pissa_niter_16"),
    ({"init_lora_weights": "olora"}, "init_lora_weights: belongs to a base model"),
    ({"lora_alpha": 0}, "lora_alpha: impossible value .*found 0"),
    ({"lora_alpha": None}, "lora_alpha: impossible value"),
    ({"alpha_pattern": {"q_proj": 0}}, "q_proj: impossible value"),
    ({"alpha_pattern": {"(a+)+b": 1}}, r"alpha_pattern: regular expressions are not supported .*found \(a\+\)\+b"),
    ({"rank_pattern": {"^model.q": 4}}, "rank_pattern: regular expressions are not supported"),
    ({"rank_pattern": []}, "rank_pattern: wrong type"),
    ({"r": None}, "r: missing or impossible value"),
    ({"r": 5}, r"adapter_model\.safetensors: base_model\.model\..*lora_A\.weight: wrong rank \(expected 5, found 4\)"),
    ({"rank_pattern": {"gate_proj": 2}}, r"gate_proj\.lora_A\.weight: wrong rank \(expected 2, found 4\)"),
    ({"use_rslora": 1}, "use_rslora: wrong type"),
]


@pytest.mark.parametrize(("settings", "message"), PEFT_FIELDS)
def test_peft_field_refused(tmp_path: Path, settings, message):
    check(refusal(write_peft_adapter(tmp_path / "p", factors(), **settings)), message)


def spoilt_gguf(path: Path, change) -> Path:
    """An adapter whose factors are changed before it is written."""
    pairs = factors()
    change(pairs)
    return write_gguf_adapter(path, CONFIG, pairs)


def other_rows(pairs) -> None:
    pairs[GATE] = (pairs[GATE][0][:-8], pairs[GATE][1])


def other_columns(pairs) -> None:
    pairs[Q] = (pairs[Q][0], pairs[Q][1][:, :-8])


def other_rank(pairs) -> None:
    pairs[GATE] = (pairs[GATE][0], np.vstack([pairs[GATE][1]] * 2))


SHAPES = [
    (other_rows, r"gate_proj.* \(expected \[40, 4\], found \[32, 4\]\)"),
    (other_columns, r"q_proj.* \(expected \[4, 32\], found \[4, 24\]\)"),
    (other_rank, r"gate_proj.* \(expected \[4, 32\], found \[8, 32\]\)"),
]


@pytest.mark.parametrize(("change", "message"), SHAPES)
def test_shape_refused(tmp_path: Path, change, message):
    check(refusal(spoilt_gguf(tmp_path / "a.gguf", change)), message)
    pairs = factors()
    change(pairs)
    check(refusal(write_peft_adapter(tmp_path / "p", pairs)), message)


def peft_with(folder: Path, edit) -> Path:
    path = write_peft_adapter(folder, factors()) / "adapter_model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)
    return folder


A0 = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def test_half_of_a_pair(tmp_path: Path):
    line = refusal(peft_with(tmp_path / "p", lambda tensors: tensors.pop(A0)))
    assert line.endswith(f"{A0.replace('_A', '_B')}: one half of a pair, the other is missing")
    path = write_gguf_adapter(tmp_path / "a.gguf", CONFIG, factors())
    path.write_bytes(path.read_bytes().replace(b"blk.0.attn_q.weight.lora_b", b"blk.0.attn_v.weight.lora_b"))
    check(refusal(path), r"blk\.0\.attn_q\.weight\.lora_a: one half of a pair")


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias",
        "base_model.model.lm_head.modules_to_save.weight",
        "base_model.model.model.layers.0.input_layernorm.weight",
        "base_model.model.model.layers.0.self_attn.k_proj.lora_embedding_A",
        "base_model.model.model.embed_tokens.lora_A.weight",
        "base_model.model.model.vision_tower.q_proj.lora_A.weight",
    ],
)
def test_tensor_that_matches_nothing_is_named(tmp_path: Path, name):
    line = refusal(peft_with(tmp_path / "p", lambda tensors: tensors.update({name: np.ones((4, 32), np.float32)})))
    assert line == f"adapter_model.safetensors: {name}: matches no tensor of the model"


def test_two_tensors_for_one_half(tmp_path: Path):
    name = A0.removeprefix("base_model.model.")
    line = refusal(peft_with(tmp_path / "p", lambda tensors: tensors.update({name: tensors[A0]})))
    check(line, rf"{name}: changes the same weight as {A0}|{A0}: changes the same weight as {name}")


def test_gguf_tensor_that_matches_nothing_is_named(tmp_path: Path):
    path = write_gguf_adapter(tmp_path / "a.gguf", CONFIG, factors())
    path.write_bytes(path.read_bytes().replace(b"blk.0.attn_q.weight.lora", b"blk.7.attn_q.weight.lora"))
    names = "blk.7.attn_q.weight.lora_a, blk.7.attn_q.weight.lora_b"
    assert refusal(path) == f"{names}: matches no tensor of the model"


def test_adapter_that_matches_no_tensor(tmp_path: Path):
    other = tiny_config(**SMALL, num_hidden_layers=9)
    wide = {name: pair for name, pair in adapter_factors(other, ("q_proj",)).items() if "layers.0." not in name}
    wide = {name: pair for name, pair in wide.items() if "layers.1." not in name}
    message = r"the adapter matches no tensor of the model \(found .*layers\.2\..* and 6 more\)"
    check(refusal(write_peft_adapter(tmp_path / "p", wide)), message)
    message = r"the adapter matches no tensor of the model \(found blk\.2\.attn_q\.weight\.lora_a, .*\)"
    check(refusal(write_gguf_adapter(tmp_path / "a.gguf", other, wide)), message)
    check(
        refusal(write_gguf_adapter(tmp_path / "b.gguf", CONFIG, {})),
        r"matches no tensor of the model \(found no tensors\)",
    )


def test_low_rank_change_of_a_vector(tmp_path: Path):
    pairs = {"model.norm.weight": (np.ones((32, 4), np.float32), np.ones((4, 1), np.float32))}
    check(refusal(write_gguf_adapter(tmp_path / "a.gguf", CONFIG, pairs)), "a vector has no low-rank change")


@pytest.mark.parametrize("module", ["embed_tokens", "lm_head"])
def test_tied_embedding_or_head(tmp_path: Path, module):
    base = NoiseCheckpoint(TIED, 1)
    for path in (
        write_gguf_adapter(tmp_path / "a.gguf", TIED, adapter_factors(TIED, (module, "q_proj"))),
        write_peft_adapter(tmp_path / "p", adapter_factors(TIED, (module, "q_proj"))),
    ):
        check(refusal(path, base=base), "changes one of embedding and head, which this model has as one tensor")


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), float("-inf"), 1e38, 1e300])
def test_scale_refused(tmp_path: Path, scale):
    path = write_peft_adapter(tmp_path / "p", factors(), alpha=400.0)
    assert "impossible scale of an adapter" in refusal(path, scale=scale)


def test_base_model_given_as_adapter(tmp_path: Path):
    write_tiny_gguf(tmp_path / "m.gguf", CONFIG, 1)
    check(refusal(tmp_path / "m.gguf"), r"general\.type: not an adapter")
    write_tiny_hf(tmp_path / "hf", CONFIG, 1)
    assert refusal(tmp_path / "hf") == "a base model, not an adapter"
    with pytest.raises(CheckpointError, match="a base model, not an adapter"):
        adapter_files(tmp_path / "hf")


def test_adapter_given_as_base_model(tmp_path: Path):
    for path in (
        write_gguf_adapter(tmp_path / "a.gguf", CONFIG, factors()),
        write_peft_adapter(tmp_path / "p", factors()),
    ):
        with pytest.raises(CheckpointError, match=r"not a base model|an adapter, not a base model"):
            open_checkpoint(path)


def test_paths_that_lead_nowhere(tmp_path: Path):
    assert "no such file" in refusal(tmp_path / "a.gguf", MissingFileError)
    (tmp_path / "p").mkdir()
    assert refusal(tmp_path / "p", MissingFileError) == "adapter_config.json: no such file"
    (tmp_path / "p/adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    assert refusal(tmp_path / "p", MissingFileError) == "adapter_model.safetensors: no such file"
    (tmp_path / "p/adapter_model.bin").touch()
    assert "pickled weights" in refusal(tmp_path / "p", MissingFileError)
    path = write_peft_adapter(tmp_path / "q", factors()) / "adapter_model.safetensors"
    for call in (adapter_files, lambda file: merge_adapter(BASE, file, 1.0)):
        with pytest.raises(CheckpointError, match="name its directory"):
            call(path)


def test_integers_are_no_factors(tmp_path: Path):
    path = write_peft_adapter(tmp_path / "p", factors(), dtype=np.int32)
    with pytest.raises(CheckpointError, match="not a weight"):
        merge_adapter(BASE, path, 1.0).read(Q)
