"""GGUF models under HF names: equal to their safetensors twins, whole and by rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.hf_checkpoint import HfCheckpoint
from pipeline.checkpoint.noise import write_hf_directory
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.checkpoint.source_file import CheckpointWarning
from pipeline.errors import CheckpointError, NotFiniteError
from tests.helpers.gguf_bytes import ARRAY, F32, STRING, U32, GgufBytes, f32, model_gguf
from tests.helpers.tiny import tiny_config, tiny_weights, write_gguf, write_tiny_gguf, write_tiny_hf

SMALL = {"hidden_size": 32, "intermediate_size": 40, "vocab_size": 20, "head_dim": 8, "num_hidden_layers": 2}
Q = "model.layers.1.self_attn.q_proj.weight"


def small(arch: str = "llama", **overrides) -> GgufBytes:
    config = tiny_config(arch, **(SMALL | {"num_attention_heads": 4, "num_key_value_heads": 2} | overrides))
    return model_gguf(config, tiny_weights(config, 1))


def refusal(parts: GgufBytes, path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        GgufCheckpoint(parts.write(path / "m.gguf"))
    line = str(caught.value)
    assert line.startswith(str(path / "m.gguf")) and "\n" not in line
    return line.removeprefix(str(path / "m.gguf: "))


def without(parts: GgufBytes, *names: str) -> GgufBytes:
    parts.tensors = [tensor for tensor in parts.tensors if tensor.name not in names]
    return parts


@pytest.mark.parametrize("window", [0, 512, 4096])
def test_window_that_holds_the_whole_context_changes_nothing(tmp_path: Path, window):
    parts = small()
    config = GgufCheckpoint(parts.write(tmp_path / "m.gguf")).config
    parts.keys["llama.attention.sliding_window"] = (U32, window)
    assert GgufCheckpoint(parts.write(tmp_path / "m.gguf")).config == config


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("head_dim", [64, 48])
@pytest.mark.parametrize("tied", [False, True])
def test_twins_are_equal(tmp_path: Path, arch, head_dim, tied):
    config = tiny_config(
        arch, head_dim=head_dim, num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=tied, rope_theta=5e5
    )
    write_tiny_gguf(tmp_path / "m.gguf", config, 3)
    write_tiny_hf(tmp_path / "hf", config, 3)
    ours: Checkpoint = GgufCheckpoint(tmp_path / "m.gguf")
    twin: Checkpoint = HfCheckpoint(tmp_path / "hf")
    assert ours.config == twin.config == config
    assert sorted(ours.names()) == sorted(twin.names()) and "lm_head.weight" in ours.names()
    for name in ours.names():
        assert ours.shape(name) == twin.shape(name) and ours.type_name(name) == twin.type_name(name) == "F32"
        np.testing.assert_array_equal(ours.read(name), twin.read(name), strict=True)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (8, 1)])
def test_llama_rows_filled_with_their_number(tmp_path: Path, heads, kv_heads):
    """As llama.cpp's converter would store them: row i of the safetensors holds i."""
    config = tiny_config(**(SMALL | {"num_attention_heads": heads, "num_key_value_heads": kv_heads}))
    weights = tiny_weights(config, 1)
    for values in weights.values():
        values[:] = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    write_gguf(tmp_path / "m.gguf", config, weights)
    write_hf_directory(tmp_path / "hf", config, weights.items(), "F32")
    ours, twin = GgufCheckpoint(tmp_path / "m.gguf"), HfCheckpoint(tmp_path / "hf")
    for name, values in weights.items():
        np.testing.assert_array_equal(ours.read(name), values)
        np.testing.assert_array_equal(twin.read(name), values)
    stored = ours.files[0].read_raw("blk.0.attn_q.weight").view("<f4")[:, 0]
    assert list(stored[:8]) == [0, 4, 1, 5, 2, 6, 3, 7]


@pytest.mark.parametrize("rows", [slice(0, 1), slice(3, 5), slice(7, 9), slice(5, 30), slice(8, 16), slice(31, None)])
@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_row_ranges_equal_whole(tmp_path: Path, arch, rows):
    source = GgufCheckpoint(small(arch).write(tmp_path / "m.gguf"))
    for name in source.names():
        part = source.read(name, rows)
        np.testing.assert_array_equal(part, source.read(name)[rows], strict=True)
        assert part.flags.c_contiguous and part.dtype == np.float32


def test_rows_are_clipped_like_slices_and_steps_are_a_mistake(tmp_path: Path):
    source = GgufCheckpoint(small().write(tmp_path / "m.gguf"))
    assert source.read(Q, slice(30, 99)).shape == (2, 32) and source.read(Q, slice(9, 3)).shape == (0, 32)
    np.testing.assert_array_equal(source.read(Q, slice(-3, None)), source.read(Q)[-3:])
    with pytest.raises(ValueError, match="steps of 2"):
        source.read(Q, slice(0, 8, 2))


def test_rows_of_a_long_tensor_are_read_in_chunks(tmp_path: Path):
    config = tiny_config(**(SMALL | {"vocab_size": 9001, "num_attention_heads": 4}))
    weights = write_tiny_gguf(tmp_path / "m.gguf", config, 1, "Q8_0")
    source = GgufCheckpoint(tmp_path / "m.gguf")
    whole = source.read("model.embed_tokens.weight")
    assert np.abs(whole - weights["model.embed_tokens.weight"]).max() < 0.01
    np.testing.assert_array_equal(source.read("model.embed_tokens.weight", slice(5000, 9001)), whole[5000:])


def test_unknown_tensors_are_listed_under_their_own_names(tmp_path: Path):
    parts = small()
    extra = np.arange(6, dtype=np.float32).reshape(2, 3)
    parts.tensors += [f32("blk.1.attn_q.bias", extra[0]), f32("blk.2.nextn.eh_proj.weight", extra)]
    source = GgufCheckpoint(parts.write(tmp_path / "m.gguf"))
    assert source.names()[-2 - source.config.tie_word_embeddings :][:2] == [
        "blk.1.attn_q.bias",
        "blk.2.nextn.eh_proj.weight",
    ]
    np.testing.assert_array_equal(source.read("blk.2.nextn.eh_proj.weight"), extra)


def test_unknown_name(tmp_path: Path):
    source = GgufCheckpoint(small().write(tmp_path / "m.gguf"))
    for call in (source.shape, source.type_name, source.read):
        with pytest.raises(CheckpointError, match=r"blk\.0\.attn_q\.weight: no such tensor"):
            call("blk.0.attn_q.weight")


def test_head_of_its_own_wins(tmp_path: Path):
    source = GgufCheckpoint(small(tie_word_embeddings=False).write(tmp_path / "m.gguf"))
    assert not source.config.tie_word_embeddings
    assert not np.array_equal(source.read("lm_head.weight"), source.read("model.embed_tokens.weight"))


def test_defaults_of_absent_keys(tmp_path: Path):
    parts = small()
    for key in ("attention.head_count_kv", "attention.key_length", "rope.freq_base"):
        del parts.keys[f"llama.{key}"]
    full = small(num_key_value_heads=4)
    parts.tensors = full.tensors
    parts.keys["tokenizer.ggml.eos_token_id"] = (U32, 0xFFFFFFFF)
    config = GgufCheckpoint(parts.write(tmp_path / "m.gguf")).config
    assert (config.num_key_value_heads, config.head_dim, config.rope_theta) == (4, 8, 10000.0)
    assert (config.bos_token_id, config.eos_token_ids) == (None, ())


def test_tokens_that_end_a_generation(tmp_path: Path):
    parts = small()
    for key, token in (("bos", 1), ("eos", 7), ("eot", 7), ("eom", 3)):
        parts.keys[f"tokenizer.ggml.{key}_token_id"] = (U32, token)
    config = GgufCheckpoint(parts.write(tmp_path / "m.gguf")).config
    assert (config.bos_token_id, config.eos_token_ids) == (1, (7, 3))


@pytest.mark.parametrize("token", [20, 5000, 1 << 31])
def test_special_token_outside_the_vocabulary_is_dropped(tmp_path: Path, token):
    parts = small()
    for key, value in (("bos", token), ("eos", token), ("eot", 19)):
        parts.keys[f"tokenizer.ggml.{key}_token_id"] = (U32, value)
    with pytest.warns(CheckpointWarning) as caught:
        config = GgufCheckpoint(parts.write(tmp_path / "m.gguf")).config
    assert (config.bos_token_id, config.eos_token_ids) == (None, (19,))
    lines = [str(warning.message) for warning in caught]
    start, end = f"{tmp_path / 'm.gguf'}: tokenizer.ggml.", f"token id {token} is ignored, the vocabulary has 20 tokens"
    assert lines == [f"{start}{key}_token_id: {end}" for key in ("bos", "eos")]


def test_vocabulary_size_that_is_not_the_rows_of_the_embedding_is_said(tmp_path: Path):
    parts = small()
    parts.keys["llama.vocab_size"] = (U32, 20)
    assert GgufCheckpoint(parts.write(tmp_path / "m.gguf")).config.vocab_size == 20
    parts.keys["llama.vocab_size"] = (U32, 5)
    with pytest.warns(CheckpointWarning, match=r"llama\.vocab_size: 5 is ignored, token_embd\.weight has 20 rows"):
        assert GgufCheckpoint(parts.write(tmp_path / "m.gguf")).config.vocab_size == 20


def test_number_of_another_type_is_refused_by_its_type(tmp_path: Path):
    parts = small()
    parts.keys["llama.rope.freq_base"] = (U32, 10000)
    assert refusal(parts, tmp_path).endswith("(expected a positive float32, found the integer 10000)")


def test_keys_with_one_value_per_layer(tmp_path: Path):
    parts = small()
    parts.keys["llama.attention.head_count_kv"] = (ARRAY, (U32, [2, 2]))
    assert GgufCheckpoint(parts.write(tmp_path / "m.gguf")).config.num_key_value_heads == 2
    parts.keys["llama.attention.head_count_kv"] = (ARRAY, (U32, [2, 4]))
    assert "llama.attention.head_count_kv: layers differ" in refusal(parts, tmp_path)
    parts.keys["llama.attention.head_count_kv"] = (ARRAY, (U32, [2] * 65537))
    assert "llama.attention.head_count_kv: too many values" in refusal(parts, tmp_path)


def test_believes_tensors_not_the_file_name(tmp_path: Path):
    write_tiny_gguf(tmp_path / "m-q4_0.gguf", tiny_config(**SMALL), 1, "Q4_1")
    assert GgufCheckpoint(tmp_path / "m-q4_0.gguf").type_name("model.embed_tokens.weight") == "Q4_1"


KEYS = {
    "general.architecture": (
        (STRING, "gemma2"),
        r"unknown architecture \(expected one of llama, qwen2, qwen3, gemma3, found gemma2\)",
    ),
    "general.type": ((STRING, "adapter"), r"not a base model \(expected model, found adapter\)"),
    "llama.rope.scaling.type": ((STRING, "yarn"), r"not supported by the engines \(expected none, found yarn\)"),
    "llama.rope.scaling.factor": ((F32, 4.0), "not supported by the engines .*found 4.0"),
    "llama.rope.dimension_count": ((U32, 4), r"not supported by the engines \(expected 8, found 4\)"),
    "llama.attention.value_length": ((U32, 16), "not supported by the engines .*found 16"),
    "llama.expert_count": ((U32, 8), "not supported by the engines .*found 8"),
    "llama.attention.sliding_window": ((U32, 511), r"not supported by the engines \(expected 0 or >= 512, found 511\)"),
    "llama.block_count": ((U32, 1 << 30), r"more layers than tensors \(expected <= \d+, found 1073741824\)"),
    "llama.embedding_length": ((U32, 0), r"missing or impossible value \(expected a positive integer, found 0\)"),
    "llama.attention.head_count": ((F32, 4.0), "missing or impossible value .*found 4.0"),
    "llama.attention.head_count_kv": ((U32, 3), "num_key_value_heads: heads do not divide"),
    "llama.attention.key_length": ((U32, 7), "head_dim: odd head_dim"),
    "llama.attention.layer_norm_rms_epsilon": ((F32, float("nan")), "missing or impossible value .*found nan"),
    "llama.rope.freq_base": ((F32, float("inf")), "missing or impossible value .*found inf"),
    "tokenizer.ggml.eos_token_id": ((STRING, "2"), "not a token id"),
}


@pytest.mark.parametrize("key", KEYS)
def test_key_refused(tmp_path: Path, key):
    parts = small()
    value, message = KEYS[key]
    parts.keys[key] = value
    line = refusal(parts, tmp_path)
    assert pytest.RaisesExc(CheckpointError, match=message).matches(CheckpointError(line)), line
    assert line.startswith((key, "num_key_value_heads", "head_dim"))


@pytest.mark.parametrize("key", ["general.architecture", "llama.block_count", "llama.context_length"])
def test_missing_key_is_named(tmp_path: Path, key):
    parts = small()
    del parts.keys[key]
    assert refusal(parts, tmp_path).startswith(key)


@pytest.mark.parametrize(
    "name", ["token_embd.weight", "blk.1.ffn_norm.weight", "output_norm.weight", "blk.0.attn_q_norm.weight"]
)
def test_missing_tensor_is_named(tmp_path: Path, name):
    shapes = {"token_embd.weight": "[vocabulary, 32]", "blk.0.attn_q_norm.weight": "[8]"}
    line = refusal(without(small("qwen3"), name), tmp_path)
    assert line == f"{name}: tensor is missing (expected {shapes.get(name, '[32]')})"


def test_missing_tensors_are_named_together(tmp_path: Path):
    parts = without(small(), "blk.0.ffn_up.weight", "blk.1.attn_k.weight", "output_norm.weight")
    names = "blk.0.ffn_up.weight, blk.1.attn_k.weight, output_norm.weight"
    assert refusal(parts, tmp_path) == f"{names}: tensors are missing (expected [40, 32] for the first)"


def test_missing_block_is_named(tmp_path: Path):
    parts = small(num_hidden_layers=3)
    parts.tensors = [tensor for tensor in parts.tensors if not tensor.name.startswith("blk.1.")]
    line = refusal(parts, tmp_path)
    assert line.startswith("blk.1.attn_q.weight, blk.1.attn_k.weight, ")
    assert line.endswith("and 1 more: tensors are missing (expected [32, 32] for the first)")
    assert line.count("blk.1.") == 8


@pytest.mark.parametrize("name", ["model.norm.weight", "lm_head.weight", Q])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_tensor_under_a_hugging_face_name_replaces_nothing(tmp_path: Path, name, first, tied):
    parts = without(small(), *(["output.weight"] if tied else []))
    parts.tensors.insert(0 if first else len(parts.tensors), f32(name, np.full(32, 7, np.float32)))
    gguf = {"model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight", Q: "blk.1.attn_q.weight"}
    line = refusal(parts, tmp_path)
    assert line.startswith(f"{name}: byte ")
    assert line.endswith(f"a Hugging Face name in a GGUF (expected {gguf[name]})")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rope_freqs.weight", "RoPE frequency factors"),
        ("rope_factors_long.weight", "RoPE frequency factors"),
        ("blk.0.attn_q.weight.lora_a", "an adapter"),
        ("blk.0.attn_q.scale", "separate scale"),
    ],
)
def test_tensor_that_would_change_the_model_is_refused(tmp_path: Path, name, reason):
    parts = small()
    parts.tensors.append(f32(name, np.ones(4, np.float32)))
    assert refusal(parts, tmp_path).startswith(f"{name}: byte ") and reason in refusal(parts, tmp_path)


def test_shape_that_contradicts_the_configuration(tmp_path: Path):
    parts = small()
    gate = next(tensor for tensor in parts.tensors if tensor.name == "blk.1.ffn_gate.weight")
    gate.dims = gate.dims[::-1]
    line = refusal(parts, tmp_path)
    assert line.startswith("blk.1.ffn_gate.weight: shape") and line.endswith("(expected [40, 32], found [32, 40])")


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "an infinity"), (-np.inf, "an infinity")])
def test_value_that_is_not_finite(tmp_path: Path, value, word):
    parts = small()
    tensor = next(tensor for tensor in parts.tensors if tensor.name == "blk.1.attn_q.weight")
    raw = np.frombuffer(tensor.data, "<f4").copy()
    raw[3 * 32 + 5] = value
    tensor.data = raw.tobytes()
    source = GgufCheckpoint(parts.write(tmp_path / "m.gguf"))
    with pytest.raises(
        NotFiniteError, match=rf"blk\.1\.attn_q\.weight: byte \d+: {word} in element 101, row 3"
    ) as caught:
        source.read(Q)
    assert caught.value.offset == source.files[0].tensors[tensor.name].offset + 404
    assert np.isfinite(source.read(Q, slice(8, 32))).all()


def test_value_of_a_vector_that_is_not_finite_has_no_row(tmp_path: Path):
    parts = small()
    tensor = next(tensor for tensor in parts.tensors if tensor.name == "output_norm.weight")
    raw = np.frombuffer(tensor.data, "<f4").copy()
    raw[5] = np.nan
    tensor.data = raw.tobytes()
    source = GgufCheckpoint(parts.write(tmp_path / "m.gguf"))
    with pytest.raises(NotFiniteError, match=r"output_norm\.weight: byte \d+: NaN in element 5$"):
        source.read("model.norm.weight")


def test_row_is_located_in_the_file(tmp_path: Path):
    """Row r of what is read is the row of the file that `locate` says, in a permuted tensor too."""
    source = GgufCheckpoint(small().write(tmp_path / "m.gguf"))
    for name in (Q, "model.layers.1.self_attn.v_proj.weight"):
        for row, values in enumerate(source.read(name)):
            file, tensor, there = source.locate(name, row)
            assert file == tmp_path / "m.gguf"
            raw = source.files[0].read_raw(tensor, slice(there, there + 1))
            np.testing.assert_array_equal(values, raw.view("<f4")[0])
