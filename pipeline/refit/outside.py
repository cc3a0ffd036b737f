"""What an engine file is but for its weights: the bits that no tensor of a layout owns."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layouts.marking import mark_tensor
from layouts.stored import EngineLayout
from pipeline.container.blob import Bytes, weight_blob
from pipeline.container.mapped import Blob
from pipeline.errors import MismatchError, VerifyError

CHUNK = 1 << 20


@dataclass(frozen=True)
class Spans:
    """Byte counts of two engine files: what the layout owns, and what of it differs."""

    planned: int = 0
    changed: int = 0


def outside_sha256(path: Path, layout: EngineLayout) -> str:
    """Hex SHA-256 of an engine file in which every bit that the layout owns is 0: the same for every refit of one engine.

    Raises MismatchError for weights of another size than the layout's.
    """
    start, digest = checked_blob(path, layout).offset, hashlib.sha256()
    with path.open("rb") as file:
        for at in range(0, path.stat().st_size, CHUNK):
            part = read_part(file.fileno(), at)
            digest.update((part & ~owned_bits(layout, at - start, len(part))).data)
    return digest.hexdigest()


def checked_blob(path: Path, layout: EngineLayout) -> Blob:
    """The weight blob of an engine. Raises MismatchError where its size is not the layout's."""
    blob = weight_blob(path)
    if blob.size != layout.blob_bytes:
        expected = f"{layout.blob_bytes} bytes"
        reason = "the layout is of another engine"
        raise MismatchError(reason, file=path, where=blob.name, expected=expected, found=blob.size)
    return blob


def compare_outside(template: Path, file: int, output: Path, layout: EngineLayout) -> Spans:
    """Compare an engine with the template that it was made from, byte by byte, but for what the layout owns.

    Parameters
    ----------
    file : descriptor of the engine
    output : its name, for errors

    Raises
    ------
    VerifyError : another size, or a bit outside the spans that differs; names the byte
    """
    start, planned, changed = checked_blob(template, layout).offset, 0, 0
    with template.open("rb") as source:
        for at, old, new in _chunks(source.fileno(), file, output):
            differs, owned = old ^ new, owned_bits(layout, at - start, len(old))
            stray = differs & ~owned
            if stray.any():
                first = at + int(np.argmax(stray != 0))
                raise VerifyError("a byte outside the planned spans changed", file=output, offset=first)
            planned += int(np.count_nonzero(owned))
            changed += int(np.count_nonzero(differs))
    return Spans(planned, changed)


def owned_bits(layout: EngineLayout, start: int, count: int) -> Bytes:
    """The bits that the layout owns of `count` bytes from byte `start` of the blob on; `start` may be negative."""
    owned = np.zeros(count, np.uint8)
    for stored in layout.tensors:
        mark_tensor(owned, stored, start)
    return owned


def read_part(file: int, start: int) -> Bytes:
    """Up to `CHUNK` bytes of an open file."""
    return np.frombuffer(os.pread(file, CHUNK, start), np.uint8)


def _chunks(old: int, new: int, output: Path) -> Iterator[tuple[int, Bytes, Bytes]]:
    sizes = os.fstat(old).st_size, os.fstat(new).st_size
    if sizes[0] != sizes[1]:
        raise VerifyError("the size changed", file=output, expected=sizes[0], found=sizes[1])
    for start in range(0, sizes[0], CHUNK):
        yield start, read_part(old, start), read_part(new, start)
