"""What sources of files share: tensors that read row ranges, and the source or checkpoint made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from pipeline.checkpoint.protocol import Float32
from pipeline.checkpoint.slots import Slot, model_slots
from pipeline.errors import CheckpointError, NotFiniteError
from pipeline.model import EMBEDDING, HEAD, ModelConfig

# measured: 5 times as fast as 2^20, for the temporaries of dequantization stay in the cache
CHUNK_ELEMENTS = 1 << 17
_NAMED = 8


class StoredTensor(Protocol):
    """A tensor of a file. `name` is the file's own, `shape` is rows first."""

    @property
    def file(self) -> Path: ...
    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def type_name(self) -> str: ...

    def read(self, start: int, stop: int) -> Float32:
        """Entries start:stop of the first axis, finite, C-contiguous. `0 <= start <= stop <= shape[0]`."""
        ...

    def row_in_file(self, row: int) -> int:
        """Where the file has what `read` gives as entry `row`."""
        ...


class StoredSource:
    """Implements `WeightSource` over tensors of files.

    Parameters
    ----------
    path : what the user named
    tensors : by name; none at all is refused
    """

    def __init__(self, path: Path, tensors: Mapping[str, StoredTensor]) -> None:
        self.path, self._tensors = path, dict(tensors)
        if not tensors:
            raise CheckpointError("holds no weights", file=path)

    def names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensor(name).shape

    def type_name(self, name: str) -> str:
        return self._tensor(name).type_name

    def read(self, name: str, rows: slice | None = None) -> Float32:
        tensor = self._tensor(name)
        return tensor.read(*row_range(rows, tensor.shape[0]))

    def locate(self, name: str, row: int) -> tuple[Path, str, int]:
        """The file of a tensor, its name there, and where that file has the tensor's row `row`."""
        tensor = self._tensor(name)
        return tensor.file, tensor.name, tensor.row_in_file(row)

    def _tensor(self, name: str) -> StoredTensor:
        if name not in self._tensors:
            raise CheckpointError("no such tensor", file=self.path, where=name)
        return self._tensors[name]


class StoredCheckpoint(StoredSource):
    """Implements `Checkpoint` over tensors of files.

    Parameters
    ----------
    path : what the user named
    config : the model
    tensors : HF name -> tensor, tensors unknown to the architecture under their own names; complete and of the right
        shapes (`check_complete`)
    """

    def __init__(self, path: Path, config: ModelConfig, tensors: Mapping[str, StoredTensor]) -> None:
        super().__init__(path, tensors)
        self.config = config
        if config.tie_word_embeddings:
            self._tensors[HEAD.name] = self._tensors[EMBEDDING.name]


def row_range(rows: slice | None, count: int) -> tuple[int, int]:
    """First and last + 1 of the rows of a slice over `count` rows, clipped as slices are, never backwards."""
    start, stop, step = slice(None).indices(count) if rows is None else rows.indices(count)
    if step != 1:
        raise ValueError(f"rows are read in order, not by steps of {step}")
    return start, max(start, stop)


def check_complete(
    path: Path,
    config: ModelConfig,
    tensors: Mapping[str, StoredTensor],
    name_of: Callable[[Slot], str] = lambda slot: slot.name,
) -> None:
    """Refuses a source that lacks tensors of its own architecture or has one of another shape.

    `name_of` gives what the source calls a tensor. Missing ones are named in one line, with the shape of the first.
    """
    if config.num_hidden_layers > len(tensors):
        raise CheckpointError(
            "more layers than tensors", file=path, expected=f"{config.num_hidden_layers} layers", found=len(tensors)
        )
    slots = [s for s in model_slots(config) if not (config.tie_word_embeddings and s.name == HEAD.name)]
    missing = [slot for slot in slots if slot.name not in tensors]
    if missing:
        raise _missing_error(path, missing, name_of)
    for slot in slots:
        tensor = tensors[slot.name]
        if tensor.shape != slot.shape:
            raise CheckpointError(
                f"shape does not follow from the {config.architecture} configuration",
                file=tensor.file,
                where=tensor.name,
                expected=list(slot.shape),
                found=list(tensor.shape),
            )


def _missing_error(path: Path, missing: list[Slot], name_of: Callable[[Slot], str]) -> CheckpointError:
    names, more = [name_of(slot) for slot in missing[:_NAMED]], len(missing) - _NAMED
    where = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    shape = str(list(missing[0].shape))
    if len(missing) == 1:
        return CheckpointError("tensor is missing", file=path, where=where, expected=shape)
    return CheckpointError("tensors are missing", file=path, where=where, expected=f"{shape} for the first")


def check_finite(values: Float32, first: int, tensor: StoredTensor, offset: int, block: int, nbytes: int) -> None:
    """Refuses a NaN or an infinity.

    Parameters
    ----------
    values : consecutive elements
    first : index of the first of them in the tensor
    tensor, offset : whose they are, and where its data begin in the file, bytes
    block, nbytes : elements and bytes of a block of the type, 1 element for unquantized types
    """
    finite = np.isfinite(values)
    if finite.all():
        return
    local = int(np.argmin(finite.reshape(-1)))
    index = first + local
    found = "NaN" if np.isnan(values.reshape(-1)[local]) else "an infinity"
    place = f"block {index // block}, element {index}" if block > 1 else f"element {index}"
    row = f", row {index // np.prod(tensor.shape[1:], dtype=int)}" if len(tensor.shape) > 1 else ""
    reason = f"{found} in {place}{row}"
    raise NotFiniteError(reason, file=tensor.file, where=tensor.name, offset=offset + index // block * nbytes)
