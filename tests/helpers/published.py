"""Integer matrices as published (axmodel facts, section 3) and as docs/quantization.md says, from the texts alone.

Plain loops over rows and chunks; nothing of `layouts` is imported.

    s8  block of 32 rows:  slot i (16 of them) at i * 72 * chunks;  chunk c of row i at 72 c, of row i + 16 at 72 c + 36
        chunk of 36 columns:  18 bytes low nibbles, 18 bytes (q >> 4) + 8, column 2j in the low half of byte j
        behind the slots:  entry (r, g) at 4 * (32 g + r): bf16(1 / scale), bf16 scale; padded to 256 bytes
    s4  the same with chunks of 32 columns in 16 bytes, q + 8, entries (r, g) at 2 * (32 g + r), padded to 64 bytes
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import ml_dtypes
import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Int8 = npt.NDArray[np.int8]
BLOCK = 32


@dataclass(frozen=True)
class Rule:
    """How a weight type becomes integers: `over` the row or the group, entry dtype of s4."""

    weight_type: str = "s8"
    over: str = "row"
    divisor: Fraction = Fraction(127)
    scale_type: str = "bf16"

    @property
    def group(self) -> int:
        return 256 if self.weight_type == "s8" else 128

    @property
    def high(self) -> int:
        return 127 if self.weight_type == "s8" else 7

    @property
    def dtype(self) -> type:
        return np.float16 if (self.weight_type, self.scale_type) == ("s4", "fp16") else ml_dtypes.bfloat16


def rule_of(weight_type: str, scale_rule: str = "row/127", scale_type: str = "bf16") -> Rule:
    """The rule of the compiler's flags."""
    if weight_type == "s4":
        return Rule("s4", "group", Fraction(7), scale_type)
    over, divisor = scale_rule.split("/")
    return Rule("s8", over, Fraction(divisor))


def scale_above(most: np.float32, rule: Rule) -> np.float32:
    """The least number of the entry's dtype that is not below most / divisor and under which nothing clips; 1 for 0."""
    if most == 0:
        return np.float32(1)
    wanted = Fraction(float(most)) / rule.divisor
    found = np.asarray(float(wanted)).astype(rule.dtype)
    bits = int(found.view(np.uint16)) - 2
    while True:
        scale = np.float32(np.uint16(bits).view(rule.dtype))
        if scale > 0 and Fraction(float(scale)) >= wanted and np.rint(most / scale) <= rule.high:
            return scale
        bits += 1


def scales_of(values: Float32, rule: Rule) -> Float32:
    """Scale of every (row, group)."""
    rows, cols = values.shape
    groups = -(-cols // rule.group)
    found = np.empty((rows, groups), np.float32)
    for row in range(rows):
        for group in range(groups):
            part = values[row] if rule.over == "row" else values[row, group * rule.group : (group + 1) * rule.group]
            found[row, group] = scale_above(np.abs(part).max(), rule)
    return found


def quantized(values: Float32, scales: Float32, rule: Rule) -> Int8:
    wide = np.repeat(scales, rule.group, axis=1)[:, : values.shape[1]]
    q = np.clip(np.rint(values / wide), -rule.high - 1, rule.high)
    return q.astype(np.int8)


def dequantized(q: Int8, scales: Float32, rule: Rule) -> Float32:
    return q.astype(np.float32) * np.repeat(scales, rule.group, axis=1)[:, : q.shape[1]]


def entry_bytes(scale: np.float32, rule: Rule) -> bytes:
    stored = np.float32(scale).astype(rule.dtype).tobytes()
    if rule.weight_type == "s4":
        return stored
    return (np.float32(1) / np.float32(scale)).astype(ml_dtypes.bfloat16).tobytes() + stored


def matrix_bytes(q: Int8, scales: Float32, rule: Rule) -> bytes:
    """The whole region of a matrix at layout seed 0, unused slots 0."""
    return b"".join(
        _block(q[first : first + BLOCK], scales[first : first + BLOCK], rule) for first in range(0, len(q), BLOCK)
    )


def _block(q: Int8, scales: Float32, rule: Rule) -> bytes:
    columns, size = (36, 36) if rule.weight_type == "s8" else (32, 16)
    width, cluster = (4, 256) if rule.weight_type == "s8" else (2, 64)
    chunks, groups = -(-q.shape[1] // columns), scales.shape[1]
    slots = bytearray(16 * 2 * size * chunks)
    entries = bytearray(-(-width * BLOCK * groups // cluster) * cluster)
    for row in range(len(q)):
        for chunk in range(chunks):
            at = (row % 16) * 2 * size * chunks + 2 * size * chunk + size * (row // 16)
            slots[at : at + size] = _chunk(q[row, chunk * columns : (chunk + 1) * columns], rule)
        for group in range(groups):
            at = width * (BLOCK * group + row)
            entries[at : at + width] = entry_bytes(scales[row, group], rule)
    return bytes(slots + entries)


def _chunk(q: Int8, rule: Rule) -> bytes:
    steps = [int(value) for value in q]
    if rule.weight_type == "s4":
        return _nibbles([value + 8 for value in steps], 16)
    return _nibbles([value & 15 for value in steps], 18) + _nibbles([(value >> 4) + 8 for value in steps], 18)


def _nibbles(values: list[int], size: int) -> bytes:
    packed = bytearray(size)
    for index, value in enumerate(values):
        packed[index // 2] |= value << 4 * (index % 2)
    return bytes(packed)


def read_matrix(region: bytes, shape: tuple[int, int], rule: Rule) -> Int8:
    """The integers of a region at layout seed 0."""
    columns, size = (36, 36) if rule.weight_type == "s8" else (32, 16)
    rows, cols = shape
    chunks = -(-cols // columns)
    stride = len(region) // -(-rows // BLOCK)
    found = np.empty(shape, np.int8)
    for row in range(rows):
        block, lane = divmod(row, BLOCK)
        start = block * stride + (lane % 16) * 2 * size * chunks + size * (lane // 16)
        for col in range(cols):
            chunk, place = divmod(col, columns)
            at = start + 2 * size * chunk + place // 2
            low = region[at] >> 4 * (place % 2) & 15
            found[row, col] = low - 8 if rule.weight_type == "s4" else (_coarse(region[at + 18], place) << 4) + low
    return found


def _coarse(byte: int, place: int) -> int:
    return (byte >> 4 * (place % 2) & 15) - 8
