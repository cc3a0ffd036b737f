"""Every operation of the microcode against docs/numerics.md, to the bit, on every instruction set and thread count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.helpers import numerics
from tests.helpers.microcode_bytes import BF16, U32, Code, Group, Slot, Weights, float_bits, write_engine
from tests.helpers.numerics import bf16_bits, bf16_floats
from tests.helpers.simulator import card, instruction_sets

Bits = npt.NDArray[np.uint16]
ISAS = instruction_sets()
RUNS = [(isa, threads) for isa in ISAS for threads in (1, 2, 3)]


def random_bits(seed: int, *shape: int, scale: float = 1.0) -> Bits:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * np.float32(scale)
    return bf16_bits(values)


def random_floats(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(path: Path, inputs: dict[str, npt.NDArray[Any]], expected: Bits) -> None:
    for isa, threads in RUNS:
        with card(isa=isa, threads=threads) as one:
            found = one.load(path).run(0, inputs)["output"]
        different = np.flatnonzero(found != expected.ravel())
        assert different.size == 0, f"{isa}, {threads} threads: {different.size} of {found.size}, first {different[0]}"


def one_input(path: Path, m: int, width: int, out: int, build: Callable[[Code, Weights, int], int]) -> Path:
    """An engine that loads `input`, applies what `build` emits, and stores the register it returns."""
    code, weights = Code(m, kind=2), Weights()
    source = code.register(width)
    code.emit("LOAD", source, 0)
    code.emit("STORE", build(code, weights, source), 0)
    group = Group([Slot("input", BF16, (m, width))], [Slot("output", BF16, (m, out))], code.encode())
    return write_engine(path / "op.axmodel", [group], bytes(weights.data))


def cancel(x: npt.NDArray[np.uint16], w: numerics.Float32) -> None:
    """Give some pairs of columns huge products that cancel: what is lost between them shows the order of the sum."""
    cols = w.shape[1]
    order = np.random.default_rng(cols).permutation(cols)[: cols // 8 * 2].reshape(-1, 2)
    w[:, order[:, 0]] *= np.float32(2.0**55)
    w[:, order[:, 1]] = -w[:, order[:, 0]]
    x[:, order[:, 1]] = x[:, order[:, 0]]


@pytest.mark.parametrize("codec", ["bf16", "fp32"])
@pytest.mark.parametrize(("m", "rows", "cols"), [(1, 300, 320), (13, 70, 129), (5, 33, 1000), (2, 1, 1), (25, 32, 256)])
def test_matmul(tmp_path: Path, codec: str, m: int, rows: int, cols: int) -> None:
    w = random_floats(1, rows, cols)
    w = numerics.round_bf16(w) if codec == "bf16" else w
    bias = random_floats(2, 1, rows)
    x = random_bits(3, m, cols)
    cancel(x, w)

    def build(code: Code, weights: Weights, source: int) -> int:
        result = code.register(rows)
        matrix = code.tensor(codec, w.shape, [weights.add(w, codec)])
        code.emit("MATMUL", source, result, matrix, code.tensor("fp32", bias.shape, [weights.add(bias, "fp32")]))
        return result

    expected = bf16_bits(numerics.matmul(bf16_floats(x), w, bias[0]))
    check(one_input(tmp_path, m, cols, rows, build), {"input": x}, expected)


@pytest.mark.parametrize(("width", "n"), [(320, 320), (320, 64), (96, 48), (1000, 1000)])
def test_norm(tmp_path: Path, width: int, n: int) -> None:
    weight, x = random_floats(4, 1, n), random_bits(5, 7, width, scale=3.0)

    def build(code: Code, weights: Weights, source: int) -> int:
        result = code.register(width)
        tensor = code.tensor("fp32", weight.shape, [weights.add(weight, "fp32")])
        code.emit("NORM", source, result, tensor, float_bits(1e-5), n)
        return result

    check(
        one_input(tmp_path, 7, width, width, build),
        {"input": x},
        bf16_bits(numerics.norm(bf16_floats(x), weight[0], 1e-5)),
    )


@pytest.mark.parametrize(("activation", "code_of_it"), [("silu", 1), ("gelu_tanh", 2)])
def test_glu_over_the_whole_range_of_exp(tmp_path: Path, activation: str, code_of_it: int) -> None:
    steps = np.concatenate(
        [
            np.linspace(-720, 720, 1988),
            np.linspace(-12, 12, 501),
            [np.inf, -np.inf, np.nan, 0.0, -0.0, 709.0, 712.0, -700.0, -704.0, 708.0, 3e38, 1e-40],
        ]
    )
    x = bf16_bits(steps.astype(np.float32))[None]
    width = x.shape[1]

    def build(code: Code, weights: Weights, source: int) -> int:
        result = code.register(width)
        code.emit("GLU", source, source, result, code_of_it)
        return result

    with np.errstate(all="ignore"):
        value = bf16_floats(x)
        expected = bf16_bits(numerics.glu(value, value, activation))
    check(one_input(tmp_path, 1, width, width, build), {"input": x}, expected)


@pytest.mark.parametrize("rounded", [False, True])
def test_add_round_and_store_of_every_bf16(tmp_path: Path, rounded: bool) -> None:
    x = np.arange(1 << 16, dtype=np.uint16)[None]
    y = np.roll(x[:, ::-1], 777)
    code = Code(1, kind=2)
    a, b, total = (code.register(x.shape[1]) for _ in range(3))
    code.emit("LOAD", a, 0)
    code.emit("LOAD", b, 1)
    code.emit("ADD", a, b, total)
    if rounded:
        code.emit("ROUND", total)
    code.emit("ADD", total, a, total)
    code.emit("STORE", total, 0)
    slots = [Slot(name, BF16, x.shape) for name in ("input", "other")]
    path = write_engine(tmp_path / "add.axmodel", [Group(slots, [Slot("output", BF16, x.shape)], code.encode())], b"")
    with np.errstate(all="ignore"):
        value = bf16_floats(x) + bf16_floats(y)
        value = numerics.round_bf16(value) if rounded else value
        expected = bf16_bits(value + bf16_floats(x))
    check(path, {"input": x, "other": y}, expected)


@pytest.mark.parametrize("head_dim", [64, 48, 6])
def test_rope(tmp_path: Path, head_dim: int) -> None:
    m, width, positions = 9, head_dim * 3, 40
    tables = [random_floats(seed, positions, head_dim // 2) for seed in (6, 7)]
    x = random_bits(8, m, width)
    indices = np.arange(m, dtype=np.uint32)[::-1].copy() * 4
    code, weights = Code(m, kind=2), Weights()
    source = code.register(width)
    code.emit("LOAD", source, 0)
    code.emit("ROPE", source, 1, *[code.tensor("fp32", t.shape, [weights.add(t, "fp32")]) for t in tables], head_dim)
    code.emit("STORE", source, 0)
    slots = [Slot("input", BF16, (m, width)), Slot("indices", U32, (m,))]
    group = Group(slots, [Slot("output", BF16, (m, width))], code.encode())
    path = write_engine(tmp_path / "rope.axmodel", [group], bytes(weights.data))
    expected = bf16_bits(numerics.rope(bf16_floats(x), indices, *tables, head_dim))
    check(path, {"input": x, "indices": indices}, expected)


def attention_engine(path: Path, m: int, history: int, heads: int, kv_heads: int, d: int) -> Path:
    code = Code(m, history, kind=2)
    q, k, v, out = (code.register(n * d) for n in (heads, kv_heads, kv_heads, heads))
    for io, register in enumerate((q, k, v)):
        code.emit("LOAD", register, io)
    code.emit("ATTEND", q, k, v, out, 3, 4, 5, heads, kv_heads, d, float_bits(d**-0.5))
    code.emit("STORE", out, 0)
    inputs = [Slot("q", BF16, (m, heads * d))] + [Slot(name, BF16, (m, kv_heads * d)) for name in "kv"]
    inputs += [Slot(f"{name}_cache", BF16, (1, max(history, 1), kv_heads * d)) for name in "KV"]
    inputs += [Slot("mask", BF16, (m, history + m))]
    group = Group(inputs, [Slot("output", BF16, (m, heads * d))], code.encode())
    return write_engine(path / "attend.axmodel", [group], b"\0" * 8)


SHAPES = [(1, 200, 6, 2, 64), (1, 0, 3, 1, 64), (21, 40, 5, 1, 48), (70, 33, 2, 2, 20), (33, 0, 4, 2, 160)]


@pytest.mark.parametrize("filled", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("m", "history", "heads", "kv_heads", "d"), SHAPES)
def test_attend(tmp_path: Path, m: int, history: int, heads: int, kv_heads: int, d: int, filled: float) -> None:
    used = int(history * filled)
    inputs = {
        "q": random_bits(1, m, heads * d),
        "k": random_bits(2, m, kv_heads * d),
        "v": random_bits(3, m, kv_heads * d),
    }
    for seed, name in ((4, "K_cache"), (5, "V_cache")):
        inputs[name] = random_bits(seed, max(history, 1), kv_heads * d)
        inputs[name][used:] = 0
    mask = np.full((m, history + m), -65536, np.float32)
    mask[:, :used] = 0
    mask[:, history:][np.tril_indices(m)] = 0
    mask[:, : used // 3] = -20.0 - np.arange(used // 3) * 0.5
    inputs["mask"] = bf16_bits(mask)
    real = {name: bf16_floats(bits) for name, bits in inputs.items()}
    columns = [np.concatenate([real[f"{n}_cache"][:history], real[n.lower()]]) for n in "KV"]
    expected = numerics.attend(real["q"], *columns, real["mask"], heads, kv_heads, np.float32(d**-0.5))
    check(attention_engine(tmp_path, m, history, heads, kv_heads, d), inputs, bf16_bits(expected))


def test_nan_in_a_masked_cache_row_poisons_its_heads(tmp_path: Path) -> None:
    path = attention_engine(tmp_path, 1, 64, 4, 2, 16)
    inputs = {name: random_bits(9, 1, width * 16) for name, width in (("q", 4), ("k", 2), ("v", 2))}
    inputs |= {f"{name}_cache": np.zeros((64, 32), np.uint16) for name in "KV"}
    inputs["K_cache"][50, 3] = 0xFFFF
    inputs["mask"] = bf16_bits(np.full((1, 65), -65536, np.float32))
    inputs["mask"][0, 64] = 0
    for isa in ISAS:
        with card(isa=isa) as one:
            found = bf16_floats(one.load(path).run(0, inputs)["output"])
        assert np.isnan(found[:32]).all() and np.isfinite(found[32:]).all()


def test_another_order_of_summation_gives_other_bits(tmp_path: Path) -> None:
    """The oracle itself can tell orders of summation apart on this data: the equality above means something."""
    x, w = random_bits(1, 4, 1000), numerics.round_bf16(random_floats(2, 64, 1000))
    cancel(x, w)
    ours = numerics.matmul(bf16_floats(x), w)
    plain = np.zeros(ours.shape)
    for k in range(1000):
        plain = plain + bf16_floats(x)[:, None, k].astype(np.float64) * w[None, :, k]
    assert (bf16_bits(ours) != bf16_bits(plain.astype(np.float32))).mean() > 0.2
