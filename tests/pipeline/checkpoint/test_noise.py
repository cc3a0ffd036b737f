"""Noise checkpoints and the Hugging Face directories written from them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors

from pipeline.checkpoint.hf_config import hf_config_dict, read_hf_config
from pipeline.checkpoint.noise import NoiseCheckpoint, write_hf_checkpoint, write_hf_directory
from pipeline.checkpoint.slots import stored_shapes
from pipeline.errors import CheckpointError, MismatchError
from pipeline.model import ModelConfig

CONFIG = ModelConfig("qwen2", 320, 2, 5, 1, 48, 864, 1000, 1e-6, 1e6, False, 512, 1, (2, 7))
GATE = "model.layers.1.mlp.gate_proj.weight"


def everything(source: NoiseCheckpoint):
    return ((name, source.read(name)) for name in reversed(list(stored_shapes(source.config))))


def test_noise_bytes_are_pinned():
    digest = hashlib.sha256()
    source = NoiseCheckpoint(CONFIG, 7)
    for name in source.names():
        digest.update(source.read(name).astype("<f4").tobytes())
    assert digest.hexdigest() == "0360545dbc689bec3895477fb96346de3a8444177b7e064b8354aa7884cf8df7"


@pytest.mark.parametrize("rows", [slice(0, 1), slice(3, 8), slice(1, 864), slice(863, 5000), slice(5, 5)])
def test_noise_row_range_equals_whole(rows):
    source = NoiseCheckpoint(replace(CONFIG, hidden_size=321), 7)
    np.testing.assert_array_equal(source.read(GATE, rows), source.read(GATE)[rows])


def test_noise_is_the_same_in_chunks_of_any_even_size(monkeypatch):
    source = NoiseCheckpoint(replace(CONFIG, hidden_size=321), 7)
    whole, norm = source.read(GATE, slice(1, 60)), source.read("model.norm.weight")
    monkeypatch.setattr("pipeline.checkpoint.noise.CHUNK_ELEMENTS", 50)
    np.testing.assert_array_equal(source.read(GATE, slice(1, 60)), whole)
    np.testing.assert_array_equal(source.read("model.norm.weight"), norm)


def test_noise_scales_and_full_mantissas():
    source = NoiseCheckpoint(CONFIG, 7)
    gate = source.read(GATE)
    assert np.abs(gate).max() < 1 / np.sqrt(320) and abs(gate.mean()) < 1e-3 and np.all(gate != 0)
    assert np.bitwise_or.reduce(gate.view(np.uint32), axis=None) & 0x7FFFFF == 0x7FFFFF
    norm, bias = source.read("model.norm.weight"), source.read("model.layers.0.self_attn.q_proj.bias")
    assert norm.min() > 0.74 and norm.max() < 1.26 and np.ptp(norm) > 0.4
    assert 0.03 < np.abs(bias).max() < 0.0626


def test_noise_differs_by_seed_and_name():
    a, b = NoiseCheckpoint(CONFIG, 1), NoiseCheckpoint(CONFIG, 2)
    assert not np.array_equal(a.read(GATE), b.read(GATE))
    assert not np.array_equal(a.read(GATE), a.read(GATE.replace("gate", "up")))


def test_noise_tied_head_reads_embedding():
    source = NoiseCheckpoint(replace(CONFIG, tie_word_embeddings=True), 1)
    assert source.names().count("lm_head.weight") == 1
    assert source.shape("lm_head.weight") == (1000, 320)
    np.testing.assert_array_equal(source.read("lm_head.weight"), source.read("model.embed_tokens.weight"))


def test_noise_steps_are_a_mistake():
    with pytest.raises(ValueError, match="steps of 2"):
        NoiseCheckpoint(CONFIG, 1).read(GATE, slice(0, 8, 2))


def test_old_config_does_not_survive_new_weights(tmp_path: Path, monkeypatch):
    write_hf_directory(tmp_path, CONFIG, everything(NoiseCheckpoint(CONFIG, 1)), "BF16")

    def crash(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pipeline.checkpoint.noise.hf_config_dict", crash)
    with pytest.raises(OSError, match="disk full"):
        write_hf_directory(tmp_path, CONFIG, everything(NoiseCheckpoint(CONFIG, 2)), "BF16")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_noise_unknown_name_refused():
    with pytest.raises(CheckpointError, match="no such tensor"):
        NoiseCheckpoint(CONFIG, 1).read("model.layers.2.mlp.gate_proj.weight")


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_checkpoint_is_written_by_ranges_of_rows(tmp_path: Path, dtype, monkeypatch):
    source, sizes = NoiseCheckpoint(CONFIG, 3), []

    class Spy(NoiseCheckpoint):
        def read(self, name, rows=None):
            sizes.append(super().read(name, rows).size)
            return super().read(name, rows)

    monkeypatch.setattr("pipeline.checkpoint.noise._WRITE_ELEMENTS", 5000)
    write_hf_checkpoint(tmp_path / "ranges", Spy(CONFIG, 3), dtype)
    write_hf_directory(tmp_path / "whole", CONFIG, everything(source), dtype)
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "ranges" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert max(sizes) <= 5000


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_written_directory_read_by_safetensors(tmp_path: Path, dtype):
    source = NoiseCheckpoint(CONFIG, 3)
    write_hf_directory(tmp_path / "m", CONFIG, everything(source), dtype)
    stored = dict(safetensors.deserialize((tmp_path / "m/model.safetensors").read_bytes()))
    assert set(stored) == set(source.names())
    kind = ml_dtypes.bfloat16 if dtype == "BF16" else np.float32
    for name in source.names():
        assert stored[name]["dtype"] == dtype and tuple(stored[name]["shape"]) == source.shape(name)
        assert bytes(stored[name]["data"]) == source.read(name).astype(kind).tobytes()
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["config.json", "model.safetensors"]
    assert read_hf_config(tmp_path / "m/config.json") == CONFIG


def test_written_from_bf16_bits(tmp_path: Path):
    source = NoiseCheckpoint(CONFIG, 3)
    bits = {name: source.read(name).astype(ml_dtypes.bfloat16).view(np.uint16) for name in source.names()}
    write_hf_directory(tmp_path / "a", CONFIG, bits.items(), "BF16")
    write_hf_directory(tmp_path / "b", CONFIG, everything(source), "BF16")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda items: items[1:], "1 tensors were not given"),
        (lambda items: [*items, items[0]], "given twice"),
        (lambda items: [*items, ("x", items[0][1])], "not a tensor of this model"),
        (lambda items: [(items[0][0], items[0][1].T), *items[1:]], r"expected \(1000, 320\), found \(320, 1000\)"),
    ],
)
def test_written_set_of_tensors_must_fit(tmp_path: Path, change, message):
    items = list(everything(NoiseCheckpoint(CONFIG, 3)))
    with pytest.raises(MismatchError, match=message):
        write_hf_directory(tmp_path / "m", CONFIG, change(items), "F32")
    assert list((tmp_path / "m").iterdir()) == []


@pytest.mark.parametrize("eos", [(), (5,), (5, 6)])
def test_config_round_trip(tmp_path: Path, eos):
    config = replace(CONFIG, architecture="llama", eos_token_ids=eos, bos_token_id=None, rope_theta=12345.5)
    (tmp_path / "config.json").write_text(json.dumps(hf_config_dict(config)))
    assert read_hf_config(tmp_path / "config.json") == config
