"""Elements that lie one after the other in a file, little-endian, in a type that numpy or ml_dtypes knows."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pipeline.checkpoint.protocol import Float32
from pipeline.checkpoint.source_file import SourceFile
from pipeline.checkpoint.stored import CHUNK_ELEMENTS, StoredTensor, check_finite


def read_plain(
    tensor: StoredTensor, source: SourceFile, offset: int, dtype: npt.DTypeLike, start: int, stop: int
) -> Float32:
    """Entries start:stop of the tensor's first axis as float32, a chunk of the file in memory at a time.

    `offset` is where the tensor begins in the file, bytes. A double beyond float32 counts as an infinity.
    """
    kind, width = np.dtype(dtype), math.prod(tensor.shape[1:])
    values = np.empty((stop - start, width), np.float32)
    step = max(1, CHUNK_ELEMENTS // width)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        begin, count = first * width * kind.itemsize, (last - first) * width * kind.itemsize
        chunk = to_float32(source.read(offset + begin, count, tensor.name).view(kind))
        check_finite(chunk, first * width, tensor, offset, 1, kind.itemsize)
        values[first - start : last - start] = chunk.reshape(-1, width)
    return values.reshape(stop - start, *tensor.shape[1:])


def to_float32(values: npt.NDArray[np.generic]) -> Float32:
    """Rounded to nearest even; beyond its range infinite, without a warning."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
