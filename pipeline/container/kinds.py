"""Which container a file is, told by what it holds."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from pipeline.axmodel.wire import LENGTH, VARINT, fields
from pipeline.checkpoint.looks_like import looks_like
from pipeline.container.mapped import Buffer, map_file
from pipeline.errors import AxmodelError, ContainerError
from pipeline.rknn.walk import MAGIC

START_BYTES = 64
_LAST_MODEL_FIELD = 25  # the highest field number of ONNX's ModelProto is `functions`


class Container(Enum):
    AXMODEL = ".axmodel"
    RKNN = ".rknn"
    HEADERLESS = ""


def container_of(path: Path) -> Container:
    """The kind of file. A file that holds neither container is what its suffix says, headerless for any other suffix.

    Raises
    ------
    MissingFileError, ContainerError : no such file, an empty file, an engine by its suffix that is plainly something else
    """
    with map_file(path) as data:
        if bytes(data[: len(MAGIC)]) == MAGIC:
            return Container.RKNN
        if _is_onnx(data):
            return Container.AXMODEL
        seems = looks_like(bytes(data[:START_BYTES]))
    if path.suffix not in (Container.AXMODEL.value, Container.RKNN.value):
        return Container.HEADERLESS
    if not seems.startswith("bytes"):
        raise ContainerError("not an engine", file=path, found=seems)
    return Container(path.suffix)


def _is_onnx(data: Buffer) -> bool:
    """A whole message of ONNX's fields that holds a graph: raw floats do not parse to their end by chance."""
    graph = False
    try:
        for index, field in enumerate(fields(data, 0, len(data), "model")):
            if field.number > _LAST_MODEL_FIELD or (index == 0 and field.kind not in (VARINT, LENGTH)):
                return False
            graph |= field.number == 7 and field.kind == LENGTH
    except AxmodelError:
        return False
    return graph
