"""A toy engine in three marker builds: layouts written by hand, no compiler, no container."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from layouts.algebra import parse_piece
from layouts.codecs import codec
from layouts.decode import FloatMarkers, decode_float_engine
from layouts.encoding import encode_rows
from layouts.markers import Alphabet, MarkedTensor, choose_alphabet, number_tensors
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from layouts.view import write_tensor

Bytes = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]

UP, DOWN, NORM = "mlp.up_proj.weight", "mlp.down_proj.weight", "input_layernorm.weight"
SHAPES = {UP: (40, 12), DOWN: (12, 40), NORM: (12,)}
FREE = 8000  # blob byte from which on no tensor lies


def toy_layout(kind: str = "bf16", norm_kind: str | None = None) -> EngineLayout:
    """The true layout under a codec.

    up: blocks of 16 rows, lines of one k, from an odd byte on; rows 16 to 31 again. down: rows one after the other.
    norm: every second cell.
    """
    width = codec(kind).width
    line = 16 * width + 64
    block = 12 * line + 40
    up, again = 168, 224 + 3 * block
    down = again + block
    norm_width = codec(norm_kind or kind).width
    tensors = (
        _tensor(
            UP,
            kind,
            f"at 0,0  [40,12]  rows (16,3):({width},{block})  cols 12:{line}  width {width}  base {up}",
            f"at 16,0  [16,12]  rows 16:{width}  cols 12:{line}  width {width}  base {again}",
        ),
        _tensor(DOWN, kind, f"at 0,0  [12,40]  rows 12:{40 * width}  cols 40:{width}  width {width}  base {down}"),
        _tensor(
            NORM,
            norm_kind or kind,
            f"at 0,0  [1,12]  rows 1:0  cols 12:{2 * norm_width}  width {norm_width}  base {down + 488 * width}",
        ),
    )
    return EngineLayout("layer", "npu_params", FREE + 500, tensors)


def _tensor(name: str, kind: str, *pieces: str) -> StoredTensor:
    names = ("decode", "prefill")
    copies = tuple(Copy(copy, (Plane((parse_piece(text),)),)) for copy, text in zip(names, pieces, strict=False))
    rows, cols = SHAPES[name] if len(SHAPES[name]) == 2 else (1, *SHAPES[name])
    return StoredTensor(name, (rows, cols), kind, copies)


@dataclass
class Toy:
    """Three builds whose bytes a test may change before `decode`."""

    layout: EngineLayout
    marked: tuple[MarkedTensor, ...] = field(default_factory=lambda: number_tensors(SHAPES.items()))
    alphabet: Alphabet = field(default_factory=lambda: choose_alphabet(1000))
    builds: list[Bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        constant = np.random.default_rng(3).integers(0, 256, self.layout.blob_bytes, np.uint8)
        self.builds = [constant.copy() for _ in range(3)]
        for build, blob in enumerate(self.builds):
            for stored in self.layout.tensors:
                write_tensor(blob, stored, encode_rows(stored, self.weights(stored.name, build)))

    def weights(self, name: str, build: int) -> Float32:
        """What a build stores, `[rows, cols]`."""
        marked = next(tensor for tensor in self.marked if tensor.name == name)
        if build == 2:
            seed = sum(name.encode())
            return np.random.default_rng(seed).normal(size=marked.grid).astype(np.float32)
        bits = marked.values(self.alphabet, build, 0, marked.grid[0]).reshape(marked.grid)
        values: Float32 = codec(marked.form).decode(bits)
        return values

    def element(self, name: str, row: int, col: int, copy: int = 0) -> int:
        """Byte at which an element of a copy begins."""
        plane = self.layout[name].copies[copy].planes[0]
        return int(plane.addresses(row, row + 1)[0, col]) // 8

    def decode(self) -> EngineLayout:
        known = {name: self.weights(name, 2) for name in SHAPES}
        markers = FloatMarkers(self.marked, self.alphabet)
        return decode_float_engine(
            "layer", ("npu_params", 0), self.builds, markers, lambda name, rows: known[name][rows]
        )
