"""The weight blob of a file as an array: of an engine, or of the headerless embedding file, which is all blob."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.axmodel.walk import walk_engine
from pipeline.container.mapped import Blob
from pipeline.errors import AxmodelError

Bytes = npt.NDArray[np.uint8]


def weight_blob(path: Path) -> Blob:
    """Name, offset and size of the weights in `path`: the whole file unless it is an `.axmodel`."""
    if path.suffix == ".axmodel":
        blob = walk_engine(path).weights
        if blob.size == 0:
            raise AxmodelError("the weights are empty", file=path, where=blob.name, offset=blob.offset)
        return blob
    size = path.stat().st_size
    if size == 0:
        raise AxmodelError("the file is empty", file=path, offset=0)
    return Blob("embedding", 0, size)


def read_blob(path: Path) -> Bytes:
    """The weight blob of `path`, mapped read-only."""
    blob = weight_blob(path)
    return np.memmap(path, np.uint8, "r", blob.offset, (blob.size,))


def common_offset(paths: list[Path]) -> int:
    """The byte at which the weights start in every one of these files.

    Raises AxmodelError when they differ.
    """
    first, *others = paths
    offset = weight_blob(first).offset
    for path in others:
        if (found := weight_blob(path).offset) != offset:
            reason = f"weights start elsewhere than in {first.name}"
            raise AxmodelError(reason, file=path, where="npu_params", expected=offset, found=found)
    return offset
