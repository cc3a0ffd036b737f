"""A Hugging Face directory as a checkpoint: config.json and safetensors, in one file or sharded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.checkpoint.derived import PlusOne
from pipeline.checkpoint.hf_config import read_hf_config
from pipeline.checkpoint.hf_fields import read_json_object
from pipeline.checkpoint.safetensors_file import SafetensorsTensor, read_safetensors
from pipeline.checkpoint.slots import plus_one_names
from pipeline.checkpoint.stored import StoredCheckpoint, StoredTensor, check_complete
from pipeline.errors import CheckpointError, MissingFileError
from pipeline.model import HEAD

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"


class HfCheckpoint(StoredCheckpoint):
    """A directory that transformers would load; implements `Checkpoint`.

    Norms that the architecture stores as gain - 1 read as the gain.
    A stored `lm_head.weight` is used even where the configuration ties it to the embedding.
    """

    def __init__(self, directory: str | Path) -> None:
        path = Path(directory)
        if (path / ADAPTER_CONFIG).is_file() and not (path / CONFIG).is_file():
            raise CheckpointError("an adapter, not a base model", file=path / ADAPTER_CONFIG)
        config = read_hf_config(path / CONFIG)
        tensors = _read_tensors(path)
        if HEAD.name in tensors:
            config = replace(config, tie_word_embeddings=False)
        check_complete(path, config, tensors)
        gains: dict[str, StoredTensor] = {name: PlusOne(tensors[name]) for name in plus_one_names(config)}
        super().__init__(path, config, {**tensors, **gains})


def hf_files(directory: Path) -> list[Path]:
    """All files that make up the checkpoint: config.json, the index if there is one, the safetensors files."""
    index = directory / INDEX
    if index.is_file():
        return [directory / CONFIG, index, *(directory / name for name in _shard_names(_weight_map(index)))]
    return [directory / CONFIG, directory / SINGLE]


def _read_tensors(directory: Path) -> dict[str, SafetensorsTensor]:
    index = directory / INDEX
    tensors = _read_shards(directory, index) if index.is_file() else read_safetensors(directory / SINGLE)
    # old checkpoints carry a buffer that transformers recomputes from rope_theta
    return {name: tensor for name, tensor in tensors.items() if not name.endswith(".rotary_emb.inv_freq")}


def _read_shards(directory: Path, index: Path) -> dict[str, SafetensorsTensor]:
    weight_map = _weight_map(index)
    tensors: dict[str, SafetensorsTensor] = {}
    for shard in _shard_names(weight_map):
        if not (directory / shard).exists():
            raise MissingFileError(f"shard is missing, {INDEX} names it", file=directory / shard)
        for name, tensor in read_safetensors(directory / shard).items():
            if name in tensors:
                raise CheckpointError(
                    f"duplicate tensor, also in {tensors[name].file.name}", file=tensor.file, where=name
                )
            tensors[name] = tensor
    for name, shard in weight_map.items():
        found = tensors[name].file.name if name in tensors else "in no shard"
        if found != shard:
            raise CheckpointError(
                "tensor is not where the index says", file=index, where=name, expected=shard, found=found
            )
    unlisted = [name for name in tensors if name not in weight_map]
    if unlisted:
        raise CheckpointError("tensor is not in the index", file=tensors[unlisted[0]].file, where=unlisted[0])
    return tensors


def _weight_map(index: Path) -> dict[str, str]:
    """Tensor name -> file name. Refuses names that lead out of the directory."""
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            "missing or empty", file=index, where="weight_map", expected="an object", found=weight_map
        )
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise CheckpointError(
                "not the name of a safetensors file", file=index, where=f"weight_map.{name}", found=shard
            )
    return weight_map


def _shard_names(weight_map: dict[str, str]) -> list[str]:
    return sorted(set(weight_map.values()))
