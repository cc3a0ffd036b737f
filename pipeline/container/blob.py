"""The weight blob of a file as an array: of an engine, or of the headerless embedding file, which is all blob."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.axmodel.walk import walk_engine
from pipeline.container.kinds import Container, container_of
from pipeline.container.mapped import Blob
from pipeline.errors import AxmodelError, ContainerError
from pipeline.rknn.walk import walk_rknn

Bytes = npt.NDArray[np.uint8]


def weight_blob(path: Path) -> Blob:
    """Name, offset and size of the weights of `path`; told by content, the suffix only decides for headerless files.

    `.axmodel`: the weight initializer, or the span over several ("first..last"). `.rknn`: the FlatBuffer. Any other file is
    all blob.

    Raises
    ------
    MissingFileError, ContainerError : no such file, a container that is malformed or holds no weights
    """
    kind = container_of(path)
    if kind is Container.AXMODEL:
        return _filled(walk_engine(path).weights, path)
    if kind is Container.RKNN:
        return walk_rknn(path).body
    return Blob("embedding", 0, path.stat().st_size)


def weight_parts(path: Path) -> tuple[Blob, ...]:
    """The blobs that really hold weights, in file order; all of them lie within `weight_blob`. Raises as it does."""
    kind = container_of(path)
    if kind is Container.AXMODEL:
        return tuple(_filled(part, path) for part in walk_engine(path).parts)
    if kind is Container.RKNN:
        return tuple(tensor.data for tensor in walk_rknn(path).constants() if tensor.data)
    return (weight_blob(path),)


def _filled(blob: Blob, path: Path) -> Blob:
    if blob.size == 0:
        raise AxmodelError("the weights are empty", file=path, where=blob.name, offset=blob.offset)
    return blob


def read_blob(path: Path) -> Bytes:
    """The weight blob of `path`, mapped read-only."""
    blob = weight_blob(path)
    return np.memmap(path, np.uint8, "r", blob.offset, (blob.size,))


def common_offset(paths: list[Path]) -> int:
    """The byte at which the weights start in every one of these files.

    Raises ContainerError when they differ.
    """
    first, *others = paths
    offset = weight_blob(first).offset
    for path in others:
        found = weight_blob(path)
        if found.offset != offset:
            reason = f"weights start elsewhere than in {first.name}"
            raise ContainerError(reason, file=path, where=found.name, expected=offset, found=found.offset)
    return offset
