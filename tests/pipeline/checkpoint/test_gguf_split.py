"""Split GGUF files: any shard may be named; what is missing or disagrees is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.open import source_files
from pipeline.errors import CheckpointError, MissingFileError
from tests.helpers.gguf_bytes import I32, STRING, U16, GgufBytes, model_gguf
from tests.helpers.tiny import tiny_config, tiny_weights

CONFIG = tiny_config(
    hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=40, vocab_size=20
)
WEIGHTS = tiny_weights(CONFIG, 1)


def shards() -> list[GgufBytes]:
    """Three shards; the metadata are in the first, the head is in the last."""
    whole = model_gguf(CONFIG, WEIGHTS)
    total = len(whole.tensors)
    cuts = [whole.tensors[:5], whole.tensors[5:9], whole.tensors[9:]]
    parts = [GgufBytes(dict(whole.keys) if i == 0 else {}, tensors) for i, tensors in enumerate(cuts)]
    for number, part in enumerate(parts):
        part.keys |= {"split.no": (U16, number), "split.count": (U16, 3), "split.tensors.count": (I32, total)}
    return parts


def write(parts: list[GgufBytes], folder: Path) -> list[Path]:
    names = [folder / f"tiny-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    return [part.write(name) for part, name in zip(parts, names, strict=True)]


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_shard_opens_the_whole(tmp_path: Path, given):
    paths = write(shards(), tmp_path)
    source = GgufCheckpoint(paths[given])
    assert source.config.num_hidden_layers == 2 and source_files(paths[given]) == paths
    for name, values in WEIGHTS.items():
        np.testing.assert_array_equal(source.read(name), values)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_missing_shard_is_named(tmp_path: Path, lost):
    paths = write(shards(), tmp_path)
    paths[lost].unlink()
    with pytest.raises(MissingFileError, match=f"{paths[lost].name}: shard is missing"):
        GgufCheckpoint(paths[lost - 1])


@pytest.mark.parametrize(
    ("shard", "key", "value", "message"),
    [
        (1, "split.count", (U16, 4), r"00002-of-00003\.gguf: split\.count: shard disagrees .*expected 3, found 4"),
        (1, "split.no", (U16, 2), r"00002-of-00003\.gguf: split\.no: shard disagrees .*expected 1, found 2"),
        (2, "split.no", (STRING, "2"), r"split\.no: wrong type .*expected integer"),
        (0, "split.count", (U16, 2), r"00001-of-00003\.gguf: split\.count: .*expected 3, found 2"),
        (0, "split.tensors.count", (I32, 99), r"split\.tensors\.count: tensors of all shards .*expected 99, found 21"),
    ],
)
def test_disagreeing_keys(tmp_path: Path, shard, key, value, message):
    parts = shards()
    parts[shard].keys[key] = value
    with pytest.raises(CheckpointError, match=message):
        GgufCheckpoint(write(parts, tmp_path)[0])


def test_shards_swapped(tmp_path: Path):
    first, second, third = shards()
    with pytest.raises(CheckpointError, match=r"split\.no: .*expected 1, found 2"):
        GgufCheckpoint(write([first, third, second], tmp_path)[0])


def test_tensor_in_two_shards(tmp_path: Path):
    parts = shards()
    parts[2].tensors.append(parts[1].tensors[0])
    with pytest.raises(CheckpointError, match=r"00003-of-00003\.gguf: .*duplicate tensor, also in tiny-00002-of-00003"):
        GgufCheckpoint(write(parts, tmp_path)[0])


def test_renamed_shard(tmp_path: Path):
    path = write(shards(), tmp_path)[1].rename(tmp_path / "renamed.gguf")
    with pytest.raises(CheckpointError, match=r"renamed\.gguf: split file whose name does not say so"):
        GgufCheckpoint(path)
