"""Seeded noise as a checkpoint, and Hugging Face directories written from any weights.

Templates are compiled from these, never from the weights that are to be patched in.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from layouts.atomic import write_beside
from pipeline.checkpoint.hf_config import hf_config_dict
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.checkpoint.slots import plus_one_names, stored_shapes
from pipeline.checkpoint.stored import CHUNK_ELEMENTS, row_range
from pipeline.errors import CheckpointError, MismatchError
from pipeline.model import EMBEDDING, HEAD, ModelConfig

Dtype = Literal["F32", "BF16"]
_STORED: dict[str, tuple[npt.DTypeLike, str]] = {"F32": ("<f4", "float32"), "BF16": ("<u2", "bfloat16")}
_WRITE_ELEMENTS = 1 << 18

_Rows = Callable[[slice], npt.NDArray[Any]]


class NoiseCheckpoint:
    """A model of the given shape whose weights are noise; implements `Checkpoint`.

    Element i of a tensor is a function of (seed, tensor name, i) alone, the same on every machine: the raw stream of
    PCG64, integers, and one correctly rounded float32 operation or two. Matrices are uniform in (-1, 1) / sqrt(cols),
    norms in 1 +- 1/4, biases in +- 1/16; no matrix or bias element is zero.

    Parameters
    ----------
    config : dimensions of the model
    seed : any integer
    """

    def __init__(self, config: ModelConfig, seed: int) -> None:
        self.path = Path(f"noise-{seed}")
        self.config = config
        self._seed = seed
        self._shapes = stored_shapes(config)

    def names(self) -> list[str]:
        tied = [HEAD.name] if self.config.tie_word_embeddings else []
        return [*self._shapes, *tied]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[self._stored_name(name)]

    def type_name(self, name: str) -> str:
        self._stored_name(name)
        return "F32"

    def read(self, name: str, rows: slice | None = None) -> Float32:
        stored = self._stored_name(name)
        shape = self._shapes[stored]
        start, stop = row_range(rows, shape[0])
        width = math.prod(shape[1:])
        values = np.empty((stop - start) * width, np.float32)
        for at in range(0, len(values), CHUNK_ELEMENTS):
            chunk = values[at : at + CHUNK_ELEMENTS]
            chunk[:] = self._uniform(stored, start * width + at, len(chunk))
        if len(shape) > 1:
            values *= np.float32(1) / np.sqrt(np.float32(shape[-1]))
        elif stored.endswith(".bias"):
            values *= np.float32(0.0625)
        else:
            values *= np.float32(0.25)
            values += np.float32(1)
        return values.reshape(-1, *shape[1:])

    def _stored_name(self, name: str) -> str:
        stored = EMBEDDING.name if name == HEAD.name and self.config.tie_word_embeddings else name
        if stored not in self._shapes:
            raise CheckpointError("no such tensor", file=self.path, where=name)
        return stored

    def _uniform(self, name: str, start: int, count: int) -> Float32:
        """Odd multiples of 2**-24 in (-1, 1): 24 random bits each, two elements per word of the stream."""
        digest = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
        stream = np.random.PCG64(int.from_bytes(digest[:16], "little"))
        stream.advance(start // 2)
        words = stream.random_raw(start % 2 + count // 2 + 1).astype("<u8", copy=False).view("<u4")
        bits = (words[start % 2 : start % 2 + count] >> np.uint32(8)).astype(np.int32)
        odd = 2 * bits + np.int32(1 - (1 << 24))
        return odd.astype(np.float32) * np.float32(2.0**-24)


def write_hf_directory(
    directory: Path,
    config: ModelConfig,
    tensors: Iterable[tuple[str, npt.NDArray[Any]]],
    dtype: Dtype,
) -> None:
    """Writes `model.safetensors` and then `config.json` from arrays, one tensor in memory at a time.

    An old `config.json` goes before the new weights come, so that no crash leaves one with the other's.

    Parameters
    ----------
    directory : made if absent; files in it are replaced whole
    config : decides names, shapes and their order in the file (`stored_shapes`)
    tensors : (HF name, float32 or uint16 holding bf16 bits), in any order, each exactly once
    dtype : what is stored; float32 is rounded to bf16 to nearest even, bf16 widens to float32 exactly. Of norms that the
        architecture stores so, gain - 1 is what is rounded

    Raises
    ------
    MismatchError : a name or a shape that the model does not have, a tensor given twice or not at all, a gain that would
        read back as another
    """
    _write_directory(directory, config, ((name, array.shape, array.__getitem__) for name, array in tensors), dtype)


def write_hf_checkpoint(directory: Path, checkpoint: Checkpoint, dtype: Dtype) -> None:
    """As `write_hf_directory`, every tensor of a checkpoint, a range of rows in memory at a time.

    Raises what reading the checkpoint raises, and MismatchError for a shape that its own configuration does not give.
    """

    def tensors() -> Iterator[tuple[str, tuple[int, ...], _Rows]]:
        for name in stored_shapes(checkpoint.config):
            yield name, checkpoint.shape(name), partial(checkpoint.read, name)

    _write_directory(directory, checkpoint.config, tensors(), dtype)


def _write_directory(
    directory: Path, config: ModelConfig, tensors: Iterable[tuple[str, tuple[int, ...], _Rows]], dtype: Dtype
) -> None:
    shapes, gains = stored_shapes(config), plus_one_names(config)
    target = directory / "model.safetensors"
    header, offsets = _header(shapes, dtype)
    directory.mkdir(parents=True, exist_ok=True)
    with write_beside(target) as file:
        file.write(header)
        for name, shape, read in tensors:
            if name not in offsets:
                problem = "given twice" if name in shapes else "not a tensor of this model"
                raise MismatchError(problem, file=target, where=name)
            if shape != shapes[name]:
                raise MismatchError("wrong shape", file=target, where=name, expected=shapes[name], found=shape)
            file.seek(len(header) + offsets.pop(name))
            if name in gains:
                read = partial(np.ndarray.__getitem__, _minus_one(read(slice(None)), name, target))
            _write_tensor(file, shape, read, dtype)
        if offsets:
            raise MismatchError(f"{len(offsets)} tensors were not given", file=target, where=next(iter(offsets)))
        (directory / "config.json").unlink(missing_ok=True)
    with write_beside(directory / "config.json") as file:
        file.write(json.dumps(hf_config_dict(config, _STORED[dtype][1]), indent=2).encode() + b"\n")


def _header(shapes: dict[str, tuple[int, ...]], dtype: Dtype) -> tuple[bytes, dict[str, int]]:
    """The safetensors header (u64 length, JSON padded to 8 bytes) and each tensor's offset behind it."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offsets, end = {}, 0
    for name, shape in shapes.items():
        offsets[name] = end
        end += math.prod(shape) * np.dtype(_STORED[dtype][0]).itemsize
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offsets[name], end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, offsets


def _write_tensor(file: BinaryIO, shape: tuple[int, ...], read: _Rows, dtype: Dtype) -> None:
    step = max(1, _WRITE_ELEMENTS // math.prod(shape[1:]))
    for start in range(0, shape[0], step):
        rows = np.ascontiguousarray(read(slice(start, start + step)))
        if rows.dtype == np.uint16 and dtype == "F32":
            rows = rows.view(ml_dtypes.bfloat16).astype(np.float32)
        elif rows.dtype == np.float32 and dtype == "BF16":
            rows = rows.astype(ml_dtypes.bfloat16).view(np.uint16)
        elif rows.dtype not in (np.uint16, np.float32):
            raise TypeError(f"float32 or uint16 (bf16 bits), not {rows.dtype}")
        file.write(rows.astype(_STORED[dtype][0], copy=False).data)


def _minus_one(rows: npt.NDArray[Any], name: str, target: Path) -> Float32:
    """Gains as the file has them. Refuses one that would read back as another even without rounding to bf16."""
    gains: Float32 = rows.view(ml_dtypes.bfloat16).astype(np.float32) if rows.dtype == np.uint16 else rows
    less: Float32 = gains - np.float32(1)
    wrong = np.flatnonzero(less + np.float32(1) != gains)
    if len(wrong):
        where = f"{name}, element {wrong[0]}"
        raise MismatchError(
            "gain does not survive being stored as gain - 1", file=target, where=where, found=gains[wrong[0]]
        )
    return less
