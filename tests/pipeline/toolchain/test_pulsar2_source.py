"""What the vendor's compiler would read without a word, and is not given."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.open import open_checkpoint
from pipeline.errors import CheckpointError, MissingFileError
from pipeline.toolchain.pulsar2_source import check_reachable, check_source, write_source
from tests.helpers.tiny import tiny_config

CONFIG = tiny_config("qwen3", hidden_size=64, intermediate_size=96, num_attention_heads=2, head_dim=32, vocab_size=300)
WEIGHTS = NoiseCheckpoint(CONFIG, 5)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_source(tmp_path / "source", WEIGHTS)
    check_source(tmp_path / "source", CONFIG)
    return tmp_path / "source"


def test_written_source_is_the_checkpoint_with_a_word_for_each_row(source: Path) -> None:
    found = open_checkpoint(source)
    assert all(np.array_equal(found.read(name), WEIGHTS.read(name)) for name in WEIGHTS.names())
    words = json.loads((source / "tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(words.values()) == list(range(CONFIG.vocab_size))


@pytest.mark.parametrize("file", ["model.safetensors", "consolidated.safetensors"])
def test_shape_that_config_does_not_give(source: Path, file: str) -> None:
    """Also in a file that transformers would not read: the compiler may."""
    tensors = load_file(source / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] = np.zeros((95, 64), np.float32)
    save_file(tensors, source / file)
    with pytest.raises(CheckpointError, match=rf"{file}.*layers\.1\.mlp\.up_proj.*\(96, 64\), found \(95, 64\)"):
        check_source(source, CONFIG)


def test_layer_that_config_does_not_count(source: Path) -> None:
    tensors = load_file(source / "model.safetensors")
    tensors["model.layers.2.mlp.up_proj.weight"] = np.zeros((96, 64), np.float32)
    save_file(tensors, source / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"a layer that config\.json does not count .*2 layers"):
        check_source(source, CONFIG)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_tokenizer_is_missing(source: Path, name: str) -> None:
    (source / name).unlink()
    with pytest.raises(MissingFileError, match="given no tokenizer"):
        check_source(source, CONFIG)


@pytest.mark.parametrize("names", [["tokenizer.model"], ["vocab.json", "merges.txt"]])
def test_other_kinds_of_tokenizer(source: Path, names: list[str]) -> None:
    (source / "tokenizer.json").unlink()
    for name in names:
        (source / name).touch()
    check_source(source, CONFIG)


def test_links_that_a_container_does_not_follow(source: Path, tmp_path: Path) -> None:
    (source / "tokenizer.json").rename(source / "real.json")
    (source / "tokenizer.json").symlink_to("real.json")
    check_reachable(source)
    (source / "model.safetensors").rename(tmp_path / "blob")
    (source / "model.safetensors").symlink_to("../blob")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: a link out of the directory"):
        check_reachable(source)
