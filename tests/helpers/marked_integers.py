"""A toy integer engine in its marker builds: layouts written by hand, no compiler, no container."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from layouts.algebra import parse_piece
from layouts.codes import CODES
from layouts.decode_integers import IntegerMarkers, decode_integer_engine
from layouts.encoding import encode_rows
from layouts.integer_markers import number_matrices
from layouts.markers import VECTOR_ALPHABET, number_tensors
from layouts.narrow_codes import builds_needed
from layouts.scales import Scales
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from layouts.view import write_tensor

Bytes = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]

UP, DOWN, NORM, BIAS = "mlp.up_proj.weight", "mlp.down_proj.weight", "input_layernorm.weight", "self_attn.q_proj.bias"
ROW = Scales("reciprocal", 256, 127.0, shared=True)
GROUP = Scales("reciprocal", 256, 127.5, shared=False)
FOUR = Scales("bf16", 128, 7.0, shared=False)


def plane(low_bit: int, bias: int, *pieces: str) -> Plane:
    return Plane(tuple(parse_piece(text) for text in pieces), low_bit, 0, bias)


def eight(shape: tuple[int, int], scales: Scales, *copies: tuple[Plane, Plane, Plane], name: str = UP) -> StoredTensor:
    """An s8 matrix: fine plane, coarse plane and entries of each copy."""
    named = zip(("decode", "prefill"), copies, strict=False)
    held = tuple(Copy(copy, (fine, coarse), entries) for copy, (fine, coarse, entries) in named)
    return StoredTensor(name, shape, "s8", held, scales)


@dataclass
class IntegerToy:
    """Builds of matrices of one codec, a norm that may be folded into the first, and a bias; a test may change the bytes.

    corrections : elements of a tensor that every build has one step off
    """

    layout: EngineLayout
    corrections: int = 0
    builds: list[Bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        matrices = [tensor for tensor in self.layout.tensors if tensor.scales is not None]
        code = CODES[matrices[0].codec](builds_needed(matrices[0].codec, [m.shape for m in matrices]))
        numbered = number_matrices([(m.name, m.shape) for m in matrices], code)
        vectors = number_tensors([(t.name, (t.shape[1],)) for t in self.layout.tensors if t.name == BIAS])
        gain = matrices[0].shape[1]
        self.markers = IntegerMarkers(code, numbered, vectors, VECTOR_ALPHABET, {NORM: gain}, {matrices[0].name: NORM})
        constant = np.random.default_rng(3).integers(0, 256, self.layout.blob_bytes, np.uint8)
        self.builds = [constant.copy() for _ in range(code.builds + 1)]
        for build, blob in enumerate(self.builds):
            for stored in self.layout.tensors:
                self._write(blob, build, stored)

    def known(self, name: str, rows: slice) -> Float32:
        """Plain weights of the confirming build."""
        shapes = {t.name: t.shape for t in self.layout.tensors} | {NORM: (1, self.markers.gains[NORM])}
        values = np.random.default_rng(sum(name.encode())).uniform(0.5, 0.99, shapes[name]).astype(np.float32)
        if name not in (NORM, BIAS):
            values *= np.random.default_rng(7).choice(np.array([-1, 1], np.float32), shapes[name])
            values[:, :128] *= np.float32(0.75)
        return values[rows]

    def decode(self) -> EngineLayout:
        return decode_integer_engine("layer", ("npu_params", 0), self.builds, self.markers, self.known)

    def _write(self, blob: Bytes, build: int, stored: StoredTensor) -> None:
        rows = slice(0, stored.shape[0])
        if build == len(self.builds) - 1:
            values = self.known(stored.name, rows)
            values = values * self.known(stored.folded, slice(0, 1)) if stored.folded else values
        else:
            values = self.markers.values(stored.name, build, rows)
        encoded = encode_rows(stored, values)
        if stored.scales is not None and self.corrections:
            raw, random = encoded.raw.copy(), np.random.default_rng(build)
            at = random.choice(raw.size, self.corrections, replace=False)
            q = raw.view(np.int8).reshape(-1)
            q[at] += np.where(q[at] > 0, -1, 1).astype(np.int8)
            encoded = replace(encoded, raw=raw)
        write_tensor(blob, stored, encoded)
