"""Matrices of integers: every shape, group, entry and layout against docs/numerics.md, to the bit, on every kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.helpers import numerics
from tests.helpers.microcode_bytes import BF16, NO_TENSOR, Code, Digits, Group, Slot, Weights, write_engine
from tests.helpers.numerics import Float32, bf16_bits, bf16_floats
from tests.helpers.simulator import card, instruction_sets

Pieces = list[tuple[int, int, int, Digits, Digits]]
RUNS = [(isa, threads) for isa in instruction_sets() for threads in (1, 3)]
GROUPS = {"s8": 256, "s4": 128, "s4_fp16": 128}
DECODE_ERROR = 0x80300709


@dataclass(frozen=True)
class Integers:
    """A quantized matrix: q `[rows, cols]`, scale entries `[rows, groups]` as stored and as multiplied with."""

    codec: str
    q: npt.NDArray[np.int64]
    entries: npt.NDArray[np.uint32]
    scales: Float32
    group: int

    @property
    def entry_bits(self) -> int:
        return 32 if self.codec == "s8" else 16

    def planes(self) -> list[npt.NDArray[np.int64]]:
        return [self.q & 15, (self.q >> 4) + 8] if self.codec == "s8" else [self.q + 8]


def make(codec: str, rows: int, cols: int, seed: int = 0, group: int = 0) -> Integers:
    """Every integer of the codec occurs as far as there is room; scales differ by powers of two and in every bit."""
    rng, group = np.random.default_rng(seed), group or GROUPS[codec]
    low, high = (-128, 128) if codec == "s8" else (-8, 8)
    q = rng.integers(low, high, (rows, cols))
    spread = np.exp2(rng.uniform(-12, 3, (rows, -(-cols // group)))).astype(np.float32)
    if codec == "s4_fp16":
        halves = spread.astype(np.float16)
        halves[0, 0] = 2.0**-24  # the least of all
        return Integers(codec, q, halves.view(np.uint16).astype(np.uint32), halves.astype(np.float32), group)
    bits = bf16_bits(spread).astype(np.uint32)
    entries = bits << 16 | bf16_bits(1 / spread) if codec == "s8" else bits
    return Integers(codec, q, entries, bf16_floats(bits.astype(np.uint16)), group)


def published(matrix: Integers) -> list[Pieces]:
    """Chunks of 36 (s4: 32) columns, row pairs 16 apart, entries in clusters of 64 behind every block of 32 rows."""
    rows, cols = matrix.q.shape
    width, planes = (36, 2) if matrix.codec == "s8" else (32, 1)
    chunks, blocks = -(-cols // width), -(-rows // 32)
    half = width // 2 * 8 * planes  # bits of one row of one chunk
    clusters = -(-matrix.entries.shape[1] * 32 // 64)
    block = 32 * chunks * half + clusters * 64 * matrix.entry_bits
    digits: Digits = [(2 * half * chunks, 16), (half, 2), (block, blocks)]
    parts: list[Pieces] = [
        [(0, rows, plane * width // 2 * 8, digits, [(4, width), (2 * half, chunks)])] for plane in range(planes)
    ]
    bits = matrix.entry_bits
    entries: Digits = [(bits, 32), (block, blocks)]
    return [*parts, [(0, rows, 32 * chunks * half, entries, [(32 * bits, matrix.entries.shape[1])])]]


def scattered(matrix: Integers) -> list[Pieces]:
    """Columns backwards at odd half bytes, planes and entries far apart, each in two pieces that run unlike each other."""
    rows, cols = matrix.q.shape
    groups, cut = matrix.entries.shape[1], (rows + 1) // 2
    parts: list[Pieces] = []
    start = 4
    for bits, count in [(4, cols)] * len(matrix.planes()) + [(matrix.entry_bits, groups)]:
        column, unit = (12, 4) if bits == 4 else (bits + 8, 8)
        row = column * count + unit
        first = (0, cut, start + column * (count - 1), [(row, cut)], [(-column, count)])
        start += row * cut + unit
        second = (cut, rows - cut, start, [(column, rows - cut)], [(column * (rows - cut) + unit, count)])
        parts.append([first, second] if cut < rows else [first])
        start = -(-(start + (column * (rows - cut) + unit) * count) // 8) * 8 + (4 if bits == 4 else 0)
    parts[-1] = [(a, b, at // 8 * 8, c, d) for a, b, at, c, d in parts[-1]]
    return parts


LAYOUTS: dict[str, Callable[[Integers], list[Pieces]]] = {"published": published, "scattered": scattered}


def add(code: Code, weights: Weights, matrix: Integers, layout: str = "published") -> int:
    *planes, entries = LAYOUTS[layout](matrix)
    start, size = len(weights.data), 0
    parts = []
    stored = [*[(plane, 4) for plane in matrix.planes()], (matrix.entries, matrix.entry_bits)]
    for (values, bits), pieces in zip(stored, [*planes, entries], strict=True):
        tail = weights.data[start:]
        del weights.data[start:]
        parts.append(weights.add_part(values, bits, pieces))
        size = max(size, len(weights.data), start + len(tail))
        weights.data += bytes(size - len(weights.data))
        for at, byte in enumerate(tail):
            weights.data[start + at] |= byte
    return code.tensor(matrix.codec, matrix.q.shape, *parts, group=matrix.group)


def matmul_engine(path: Path, m: int, matrix: Integers, layout: str, bias: Float32 | None = None) -> Path:
    rows, cols = matrix.q.shape
    code, weights = Code(m, kind=2), Weights()
    source, result = code.register(cols), code.register(rows)
    code.emit("LOAD", source, 0)
    tensor = add(code, weights, matrix, layout)
    added = NO_TENSOR if bias is None else code.tensor("fp32", bias.shape, [weights.add(bias, "fp32")])
    code.emit("MATMUL", source, result, tensor, added)
    code.emit("STORE", result, 0)
    group = Group([Slot("input", BF16, (m, cols))], [Slot("output", BF16, (m, rows))], code.encode())
    return write_engine(path / "integers.axmodel", [group], bytes(weights.data))


def check(path: Path, x: npt.NDArray[np.uint16], expected: npt.NDArray[np.uint16]) -> None:
    for isa, threads in RUNS:
        with card(isa=isa, threads=threads) as one:
            found = one.load(path).run(0, {"input": x})["output"]
        different = np.flatnonzero(found != expected.ravel())
        assert different.size == 0, f"{isa}, {threads} threads: {different.size} of {found.size}, first {different[0]}"


def inputs(m: int, matrix: Integers) -> npt.NDArray[np.uint16]:
    """Some pairs of columns have huge products that cancel: what is lost between them shows the order of the sum."""
    cols = matrix.q.shape[1]
    rng = np.random.default_rng(cols)
    x = rng.standard_normal((m, cols)).astype(np.float32)
    groups = [rng.permutation(np.arange(at, min(at + matrix.group, cols))) for at in range(0, cols, matrix.group)]
    order = np.concatenate([group[: len(group) // 8 * 2].reshape(-1, 2) for group in groups])
    matrix.q[:, order[:, 0]] |= 1  # neither -128 nor -8
    matrix.q[:, order[:, 1]] = -matrix.q[:, order[:, 0]]
    x[:, order[:, 0]] *= np.float32(2.0**52)
    x[:, order[:, 1]] = x[:, order[:, 0]]
    return bf16_bits(x)


SHAPES = [(1, 300, 320), (1, 15, 36), (13, 33, 37), (2, 1, 255), (5, 31, 257), (25, 17, 256), (1, 64, 1000), (3, 32, 1)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("codec", GROUPS)
@pytest.mark.parametrize(("m", "rows", "cols"), SHAPES)
def test_matmul(tmp_path: Path, layout: str, codec: str, m: int, rows: int, cols: int) -> None:
    matrix = make(codec, rows, cols)
    x = inputs(m, matrix)
    bias = np.random.default_rng(1).standard_normal((1, rows)).astype(np.float32)
    y = numerics.integer_matmul(bf16_floats(x), matrix.q.astype(np.int8), matrix.scales, matrix.group, bias[0])
    check(matmul_engine(tmp_path, m, matrix, layout, bias), x, bf16_bits(y))


@pytest.mark.parametrize("rows", range(1, 34))
def test_every_number_of_rows_up_to_a_panel_and_one(tmp_path: Path, rows: int) -> None:
    matrix = make("s8", rows, 130)
    x = inputs(1, matrix)
    y = numerics.integer_matmul(bf16_floats(x), matrix.q.astype(np.int8), matrix.scales, matrix.group)
    check(matmul_engine(tmp_path, 1, matrix, "published"), x, bf16_bits(y))


@pytest.mark.parametrize(("codec", "group"), [("s8", 128), ("s4", 256), ("s8", 1024)])
def test_group_is_what_the_tensor_says(tmp_path: Path, codec: str, group: int) -> None:
    matrix = make(codec, 40, 900, group=group)
    x = inputs(2, matrix)
    y = numerics.integer_matmul(bf16_floats(x), matrix.q.astype(np.int8), matrix.scales, group)
    check(matmul_engine(tmp_path, 2, matrix, "published"), x, bf16_bits(y))


def spread_inputs(m: int, cols: int, spread: int, seed: int) -> npt.NDArray[np.uint16]:
    """Every run has values `spread` powers of two apart, of any sign, zeros among them; the middle moves over the type."""
    rng = np.random.default_rng(seed)
    bits = np.empty((m, cols), np.uint16)
    for start in range(0, cols, 128):
        count = min(128, cols - start)
        low = rng.integers(0, 255 - spread, (m, 1))
        exponents = low + rng.integers(0, spread + 1, (m, count))
        exponents[:, : min(2, count)] = np.concatenate([low, low + spread], axis=1)[:, :count]
        bits[:, start : start + count] = exponents << 7 | rng.integers(0, 128, (m, count))
    bits |= rng.integers(0, 2, bits.shape).astype(np.uint16) << 15
    bits[rng.random(bits.shape) < 0.05] &= 0x8000
    return bits


def oracle(x: npt.NDArray[np.uint16], matrix: Integers) -> npt.NDArray[np.uint16]:
    with np.errstate(over="ignore", invalid="ignore"):
        q = matrix.q.astype(np.int8)
        return bf16_bits(numerics.integer_matmul(bf16_floats(x), q, matrix.scales, matrix.group))


@pytest.mark.parametrize("spread", [0, 1, 7, 8, 23, 24, 31, 32, 33, 60])
@pytest.mark.parametrize(("m", "rows", "cols"), [(1, 70, 300), (14, 33, 259)])
def test_runs_of_every_spread(tmp_path: Path, m: int, rows: int, cols: int, spread: int) -> None:
    """Up to 2^31 apart the sum of a run is exact in any order (kernels/integers.hpp), beyond it is not."""
    matrix = make("s8", rows, cols, seed=spread)
    x = spread_inputs(m, cols, spread, spread)
    check(matmul_engine(tmp_path, m, matrix, "published"), x, oracle(x, matrix))


@pytest.mark.parametrize("spread", [7, 23, 31, 32, 34])
def test_runs_of_the_largest_sums(tmp_path: Path, spread: int) -> None:
    """128 times -128 times the largest significand of either sign, and the least value beside it."""
    matrix = make("s8", 64, 256)
    matrix.q[:] = -128
    matrix.q[32:, ::2] = 127
    x = np.full((3, 256), (100 + spread) << 7 | 127, np.uint16)
    matrix.q[:, 3::16] = 1
    x[:, 3::16] = 100 << 7 | 1
    x[1] |= 0x8000
    x[2, ::2] |= 0x8000
    check(matmul_engine(tmp_path, 3, matrix, "published"), x, oracle(x, matrix))


@pytest.mark.parametrize("spread", [31, 33, 36, 45])
def test_runs_whose_large_values_cancel(tmp_path: Path, spread: int) -> None:
    """What is lost between 60 large products and their negatives is all that the result shows."""
    matrix = make("s8", 64, 256)
    matrix.q[:] = 127
    x = np.full((2, 256), (100 + spread) << 7 | 127, np.uint16)
    for start in (0, 128):
        x[:, start + 68 : start + 128] |= 0x8000
        x[:, start + 60 : start + 68] = 100 << 7 | 1
        matrix.q[:, start + 60 : start + 68] = np.random.default_rng(1).integers(-128, 128, (64, 8)) | 1
    expected = oracle(x, matrix)
    whole = bf16_floats(x).astype(np.longdouble) @ (matrix.q * matrix.scales.astype(np.longdouble)).T
    assert (bf16_bits(whole.astype(np.float32)) != expected).any() == (spread > 31)
    check(matmul_engine(tmp_path, 2, matrix, "published"), x, expected)


@pytest.mark.parametrize("special", [0x7F80, 0xFF80, 0x7FC0, 0x0001, 0x8001, 0x007F, 0x7F7F, 0xFF7F, 0x8000])
def test_runs_with_a_special_value(tmp_path: Path, special: int) -> None:
    """In one token of a tile, in one run: the others keep their bits."""
    matrix = make("s4", 40, 300)
    x = bf16_bits(np.random.default_rng(5).standard_normal((7, 300)).astype(np.float32))
    x[3, 140] = special
    check(matmul_engine(tmp_path, 7, matrix, "published"), x, oracle(x, matrix))


def test_runs_of_zeros_are_positive_zeros(tmp_path: Path) -> None:
    matrix = make("s8", 40, 200)
    x = np.tile(np.array([[0, 0x8000]], np.uint16), (2, 100))
    check(matmul_engine(tmp_path, 2, matrix, "published"), x, np.zeros((2, 40), np.uint16))


def test_the_order_shows_in_the_bits() -> None:
    """The oracle tells scaled runs from scaled weights on this data: the equality above means something."""
    matrix = make("s8", 64, 1000)
    x = bf16_floats(inputs(4, matrix))
    columns = np.repeat(matrix.scales, 256, axis=1)[:, :1000]
    ours = numerics.integer_matmul(x, matrix.q.astype(np.int8), matrix.scales, 256)
    plain = numerics.matmul(x, (matrix.q * columns.astype(np.float64)).astype(np.float32))
    assert (bf16_bits(ours) != bf16_bits(plain)).mean() > 0.2


def test_not_a_number_reaches_every_row(tmp_path: Path) -> None:
    matrix = make("s4", 20, 200)
    x = inputs(1, matrix)
    x[0, 150] = 0x7FC0
    check(matmul_engine(tmp_path, 1, matrix, "published"), x, np.full((1, 20), 0x7FC0, np.uint16))


def refuse(path: Path, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with card() as one:
        model = ctypes.c_uint64()
        capfd.readouterr()
        assert one.lib("axclrtEngineLoadFromFile", str(path).encode(), ctypes.byref(model)) == DECODE_ERROR
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1 and message in lines[0], lines


@pytest.mark.parametrize("entry", [0, 0x7F800000, 0x7FC00000, 0x80000000, 0xBF800000])
@pytest.mark.parametrize("codec", GROUPS)
def test_scales_that_are_none_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], codec: str, entry: int
) -> None:
    matrix = make(codec, 40, 600)
    halves = {0x7F800000: 0x7C00, 0x7FC00000: 0x7E00, 0x80000000: 0x8000, 0xBF800000: 0xBC00, 0: 0}
    spoilt = {"s8": entry | 0x3F80, "s4": entry >> 16, "s4_fp16": halves[entry]}[codec]
    matrix.entries[37, -1] = spoilt
    last = matrix.entries.shape[1] - 1
    refuse(matmul_engine(tmp_path, 1, matrix, "published"), f"tensor 0: scale of row 37, group {last}", capfd)


def test_the_first_half_of_an_entry_is_not_read(tmp_path: Path) -> None:
    matrix = make("s8", 40, 300)
    x = inputs(1, matrix)
    y = numerics.integer_matmul(bf16_floats(x), matrix.q.astype(np.int8), matrix.scales, matrix.group)
    matrix.entries[:] &= 0xFFFF0000
    check(matmul_engine(tmp_path, 1, matrix, "published"), x, bf16_bits(y))


@pytest.mark.parametrize("what", ["NORM", "ROPE", "bias"])
def test_integers_are_no_vectors_and_no_tables(tmp_path: Path, capfd: pytest.CaptureFixture[str], what: str) -> None:
    code, weights = Code(1, kind=2), Weights()
    source, result = code.register(64), code.register(64)
    code.emit("LOAD", source, 0)
    arguments: dict[str, tuple[Any, ...]] = {
        "NORM": (source, result, add(code, weights, make("s8", 1, 64)), 0, 64),
        "ROPE": (source, 1, *[add(code, weights, make("s8", 9, 32)) for _ in range(2)], 64),
        "bias": (source, result, *[add(code, weights, make("s8", n, 64)) for n in (64, 1)]),
    }
    code.emit("MATMUL" if what == "bias" else what, *arguments[what])
    code.emit("STORE", result if what != "ROPE" else source, 0)
    slots = [Slot("input", BF16, (1, 64)), Slot("indices", 12, (1, 1))]
    group = Group(slots, [Slot("output", BF16, (1, 64))], code.encode())
    path = write_engine(tmp_path / "bad.axmodel", [group], bytes(weights.data))
    refuse(path, "is a vector or table of integers", capfd)
