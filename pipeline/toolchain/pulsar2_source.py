"""The Hugging Face directory that the vendor's compiler reads: the user's own, or one written of any weights.

A written one has a tokenizer that says nothing, one word for each row, for the compiler may want to load one.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from pipeline.checkpoint.hf_checkpoint import HfCheckpoint
from pipeline.checkpoint.noise import write_hf_checkpoint
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.checkpoint.safetensors_file import read_safetensors
from pipeline.checkpoint.slots import stored_shapes
from pipeline.errors import CheckpointError, MissingFileError
from pipeline.files import write_json
from pipeline.model import ModelConfig

FLOAT_BYTES = 4
_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_VOCABULARIES = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))
_TOKENIZER_CONFIG = "tokenizer_config.json"


def is_directory_of(checkpoint: Checkpoint) -> bool:
    """Whether a directory of the user's holds exactly these weights, so that none has to be written."""
    return isinstance(checkpoint, HfCheckpoint)


def float_bytes(config: ModelConfig) -> int:
    """All weights as float32."""
    return FLOAT_BYTES * sum(math.prod(shape) for shape in stored_shapes(config).values())


def write_source(directory: Path, checkpoint: Checkpoint) -> None:
    """Write config, weights as float32, and tokenizer."""
    write_hf_checkpoint(directory, checkpoint, "F32")
    words = {f"t{number}": number for number in range(checkpoint.config.vocab_size)}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "t0"}
    parts: dict[str, object] = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    splitter = {"type": "WhitespaceSplit"}
    fields = parts | {"version": "1.0", "added_tokens": [], "pre_tokenizer": splitter, "model": model}
    write_json(directory / "tokenizer.json", fields)
    write_json(directory / _TOKENIZER_CONFIG, {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0"})


def check_source(directory: Path, config: ModelConfig) -> None:
    """What the compiler is said not to notice: weights of another shape than `config.json` says, no tokenizer.

    Raises
    ------
    CheckpointError : a tensor of another shape, in whichever safetensors file; a layer that is not counted
    MissingFileError : no tokenizer
    """
    shapes = stored_shapes(config)
    for file in sorted(directory.glob("*.safetensors")):
        for name, tensor in read_safetensors(file).items():
            if tensor.shape != shapes.get(name, tensor.shape):
                reason = "another shape than config.json gives it"
                raise CheckpointError(reason, file=file, where=name, expected=shapes[name], found=tensor.shape)
            layer = _LAYER.match(name)
            if layer is not None and int(layer[1]) >= config.num_hidden_layers:
                reason, layers = "a layer that config.json does not count", f"{config.num_hidden_layers} layers"
                raise CheckpointError(reason, file=file, where=name, expected=layers)
    if not any(all((directory / name).is_file() for name in names) for names in _VOCABULARIES):
        raise MissingFileError("the compiler is given no tokenizer", file=directory, expected="tokenizer.json")
    if not (directory / _TOKENIZER_CONFIG).is_file():
        raise MissingFileError("the compiler is given no tokenizer", file=directory / _TOKENIZER_CONFIG)


def check_reachable(directory: Path) -> None:
    """Refuses, with CheckpointError, files that a container which is given the directory would not find: links out of it."""
    root = directory.resolve()
    for path in sorted(directory.rglob("*")):
        target = path.resolve()
        if path.is_symlink() and not target.is_relative_to(root):
            reason = "a link out of the directory, which a container does not see: copy the files themselves"
            raise CheckpointError(reason, file=path, found=target)
