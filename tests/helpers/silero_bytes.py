"""Both public engines byte for byte in plain NumPy, from the facts of the file format: where each number stands and what it is.

Only the constants of activations are not in the weights; they are given, as they were read off the engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Arrays = Mapping[str, npt.NDArray[np.float32]]

STFT = "model.stft.forward_basis_buffer"
ENCODER = [f"model.encoder.{n}.reparam_conv.weight" for n in range(4)]
INPUT, HIDDEN = "model.decoder.rnn.weight_ih", "model.decoder.rnn.weight_hh"
BIAS_OF = {name: name.replace("weight", "bias") for name in (*ENCODER, INPUT, HIDDEN)}
BLOB = {"ax650": 713840, "ax630c": 329678}
FLOAT_BLOCK = 129 * 128


@dataclass(frozen=True)
class Constants:
    """What activations bring in: the factor of scale entries, that of the bias, and the zero point of the input."""

    scale: float
    bias: float
    zero: int


@dataclass(frozen=True)
class Part:
    """Some rows of a tensor as they follow each other in memory, with their entries.

    rows : first and last but one
    start, size : byte of the first, bytes of one block of rows (entries among them where each block has its own)
    block : rows of a block
    biases, scales : bytes of the entries from the block's first byte, or from `start` where `joint`
    """

    rows: tuple[int, int]
    start: int
    block: int
    size: int
    biases: int
    scales: int
    joint: bool = False

    def tables(self) -> tuple[Int64, Int64, Int64]:
        """Row within its block, first byte of the block, and bytes of both entries `[2, rows]`."""
        row = np.arange(self.rows[1] - self.rows[0])
        within, block = row % self.block, self.start + self.size * (row // self.block)
        lane = self.start + 4 * row if self.joint else block + 4 * within
        return within, block, np.stack([lane + self.biases, lane + self.scales])


# AX650: blocks of 32 rows in 16 slots of paired chunks; the STFT's last two rows are a half block of single chunks
PLANES = {
    STFT: [Part((0, 256), 264192, 32, 9472, 9216, 9344), Part((256, 258), 339968, 16, 4736, 4608, 4672)],
    ENCODER[0]: [Part((0, 128), 344704, 32, 14080, 13824, 13952)],
    ENCODER[1]: [Part((0, 64), 401032, 32, 12928, 12672, 12800)],
    ENCODER[2]: [Part((0, 64), 426888, 32, 4608, 9216, 9472, joint=True)],
    ENCODER[3]: [Part((0, 128), 436616, 32, 2304, 9216, 9728, joint=True)],
}
TAPS = {ENCODER[2]: (1, 3), ENCODER[3]: (1, 2)}  # those that ever see more than padding
FLOATS = {HIDDEN: 0, INPUT: 446856}

# AX630C: so many bytes of a row, then of the next of 8 (LSTM: 32 bytes); channels of a tap padded to whole groups
PLAIN = {
    STFT: [Part((0, 256), 69632, 16, 4224, 4096, 4160), Part((256, 258), 137216, 8, 2112, 2048, 2080)],
    ENCODER[0]: [Part((0, 128), 139328, 16, 6656, 6528, 6592)],
    ENCODER[1]: [Part((0, 64), 192576, 16, 6272, 6144, 6208)],
    ENCODER[2]: [Part((0, 64), 217664, 16, 3200, 3072, 3136)],
    ENCODER[3]: [Part((0, 128), 230464, 32, 6400, 6144, 6272)],
    INPUT: [Part((0, 512), 256064, 16, 2176, 2048, 2112)],
    HIDDEN: [Part((0, 512), 0, 16, 2176, 2048, 2112)],
}


@dataclass(frozen=True)
class Field:
    """Numbers of one tensor: bit addresses, their width, and the raw values, all of one shape."""

    name: str
    at: Int64
    width: int
    raw: npt.NDArray[np.uint32]


def matrix_of(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """`[rows, taps, channels]`: k runs (tap, channel), channel fastest; a matrix has one tap."""
    turned = array.transpose(0, 2, 1) if array.ndim == 3 and array.shape[1] > 1 else array.reshape(len(array), 1, -1)
    return np.ascontiguousarray(turned)


def quantized(matrix: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], Int64]:
    """Scale of each row and its integers: s = max / 127.5 in float32, 1e-10 for a row of zeros."""
    top = np.abs(matrix).reshape(len(matrix), -1).max(axis=1)
    scale = np.where(top == 0, np.float32(1e-10), top / np.float32(127.5)).astype(np.float32)
    steps = np.rint(matrix / scale.reshape(-1, *[1] * (matrix.ndim - 1)))
    return scale, np.clip(steps, -128, 127).astype(np.int64)


def engine_fields(chip: str, weights: Arrays, constants: Mapping[str, Constants]) -> Iterator[Field]:
    """Every number of the engine that follows from its weights."""
    for name, parts in (PLANES if chip == "ax650" else PLAIN).items():
        yield from _integers(chip, name, parts, weights, constants[name])
    for name, start in FLOATS.items() if chip == "ax650" else ():
        row, k = np.indices(weights[name].shape)
        yield Field(name, 8 * (start + 4 * (row % 32) + 128 * k + FLOAT_BLOCK * (row // 32)), 32, _bits(weights[name]))
        vector, row = weights[BIAS_OF[name]], np.arange(512)
        yield Field(
            BIAS_OF[name], 8 * (start + 128 * 128 + 4 * (row % 32) + FLOAT_BLOCK * (row // 32)), 32, _bits(vector)
        )


def _integers(chip: str, name: str, parts: list[Part], weights: Arrays, own: Constants) -> Iterator[Field]:
    scale, q = quantized(matrix_of(weights[name]))
    first, stop = TAPS.get(name, (0, q.shape[1])) if chip == "ax650" else (0, q.shape[1])
    q = q[:, first:stop]
    bias = weights[BIAS_OF[name]] if name in BIAS_OF else np.zeros(len(q), np.float32)
    entry = (scale * np.float64(own.scale)).astype(np.float32)
    steps = np.rint(bias / (scale * np.float32(own.bias))).astype(np.int64) - own.zero * q.sum(axis=(1, 2))
    kept = (steps * entry.astype(np.float64)).astype(np.float32) if chip == "ax650" else steps.astype(np.int32)
    for part in parts:
        rows = slice(*part.rows)
        within, block, entries = part.tables()
        table = (
            _nibbles(part, within, block, q[rows]) if chip == "ax650" else _plain(name, part, within, block, q[rows])
        )
        yield from (Field(name, *planes) for planes in table)
        yield Field(name, 8 * entries, 32, np.stack([_bits(kept[rows]), _bits(entry[rows])]))


def _nibbles(part: Part, within: Int64, block: Int64, q: Int64) -> Iterator[tuple[Int64, int, npt.NDArray[np.uint32]]]:
    """18 bytes of low nibbles, 18 bytes of (q >> 4) + 8; 128 channels are packed over taps, 129 padded to four chunks a tap."""
    tap, channel = np.indices(q.shape[1:])
    k = tap * (144 if q.shape[2] == 129 else q.shape[2]) + channel
    chunks, pair = -(-(int(k.max()) + 1) // 36), part.block // 16
    slot = block + 36 * (within // 16) + (within % 16) * 36 * pair * chunks
    byte = slot[:, None, None] + 36 * pair * (k // 36) + (k % 36) // 2
    yield 8 * byte + 4 * (k % 2), 4, (q & 15).astype(np.uint32)
    yield 8 * (byte + 18) + 4 * (k % 2), 4, ((q >> 4) + 8).astype(np.uint32)


def _plain(
    name: str, part: Part, within: Int64, block: Int64, q: Int64
) -> Iterator[tuple[Int64, int, npt.NDArray[np.uint32]]]:
    group = 32 if name in (INPUT, HIDDEN) else 8
    padded = -(-q.shape[2] // group) * group
    tap, channel = np.indices(q.shape[1:])
    k = tap * padded + channel
    row = block + group * (within % 8) + 8 * padded * q.shape[1] * (within // 8)
    yield 8 * (row[:, None, None] + 8 * group * (k // group) + k % group), 8, (q & 255).astype(np.uint32)


def _bits(values: npt.NDArray[np.float32] | npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
    return values.view(np.uint32)


def write_fields(blob: Bytes, fields: Iterator[Field]) -> Bytes:
    """Put numbers into a copy of a blob."""
    bits = np.unpackbits(blob, bitorder="little")
    for field in fields:
        for bit in range(field.width):
            bits[field.at + bit] = (field.raw >> np.uint32(bit)) & np.uint32(1)
    return np.packbits(bits, bitorder="little")


def own_bits(chip: str, weights: Arrays, constants: Mapping[str, Constants], names: set[str] | None = None) -> Bytes:
    """Mask of a blob's bits that belong to tensors (or to some of them, with their entries)."""
    fields = (field for field in engine_fields(chip, weights, constants) if names is None or field.name in names)
    ones = (Field(field.name, field.at, field.width, np.full(field.at.shape, ~np.uint32(0))) for field in fields)
    return write_fields(np.zeros(BLOB[chip], np.uint8), ones)


def cuts(chip: str) -> list[int]:
    """Bytes at which a blob can be cut: before and behind every block of rows."""
    found = {0, BLOB[chip]}
    for part in (part for parts in (PLANES if chip == "ax650" else PLAIN).values() for part in parts):
        count = part.rows[1] - part.rows[0]
        whole = {part.start, part.start + part.scales + 4 * count}
        found |= whole if part.joint else {part.start + part.size * i for i in range(-(-count // part.block) + 1)}
    for start in FLOATS.values() if chip == "ax650" else ():
        found |= {start + FLOAT_BLOCK * i for i in range(17)}
    return sorted(found)
