"""docs/numerics.md in NumPy, to the bit: the oracle of the simulator. Slow, obvious, and importing nothing of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
RUN = 128
_SPLIT = 2.0**27 + 1
_FACTORIALS = (479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2, 1, 1)


def _two_sum(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """a + b exactly, as a double and its error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """a * b exactly, as a double and its error (Dekker, Veltkamp)."""
    product = a * b
    high_a, high_b = (_SPLIT * x - (_SPLIT * x - x) for x in (a, b))
    low_a, low_b = a - high_a, b - high_b
    return product, low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)


def fma(a: Float64, b: Float64, c: Float64) -> Float64:
    """a * b + c rounded once to double: the sum of three parts, the middle one rounded to odd (Boldo, Melquiond)."""
    a, b, c = (np.atleast_1d(np.asarray(x, np.float64)) for x in np.broadcast_arrays(a, b, c))
    product, product_error = _two_product(a, b)
    low, low_error = _two_sum(c, product_error)
    high, high_error = _two_sum(product, low)
    odd, odd_error = _two_sum(low_error, high_error)
    bits = odd.view(np.int64)
    inexact = (odd_error != 0) & (bits & 1 == 0)
    step = np.where((odd_error > 0) == (odd > 0), 1, -1)
    return high + np.where(inexact, bits + step, bits).view(np.float64)


def dot(x: Float32, w: npt.NDArray[Any], scales: Float32 | None = None, group: int = 0) -> Float64:
    """Dot products over the last axis, which both broadcast to; products are exact in double.

    scales : with integers `w`, those of groups of `group` columns, `[..., groups]`
    """
    x, w = (side.astype(np.float64) for side in np.broadcast_arrays(x, w))
    sums = []
    for start in range(0, x.shape[-1], RUN):
        acc = np.zeros(x.shape[:-1])
        for k in range(start, min(start + RUN, x.shape[-1])):
            acc = acc + x[..., k] * w[..., k]
        sums.append(acc if scales is None else acc * scales[..., start // group].astype(np.float64))
    while len(sums) > 1:
        pairs = [sums[i] + sums[i + 1] for i in range(0, len(sums) - 1, 2)]
        sums = pairs + sums[len(sums) // 2 * 2 :]
    return sums[0]


def bf16_bits(x: Float32) -> npt.NDArray[np.uint16]:
    """Round to nearest even; every NaN is 0x7FC0."""
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16)


def bf16_floats(bits: npt.NDArray[np.uint16]) -> Float32:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_bf16(x: Float32) -> Float32:
    return bf16_floats(bf16_bits(x))


def matmul(x: Float32, w: Float32, bias: Float32 | None = None) -> Float32:
    """x `[m, k]` rounded to bf16, w `[n, k]`."""
    y = dot(round_bf16(x)[:, None, :], w[None, :, :])
    return (y if bias is None else y + bias.astype(np.float64)).astype(np.float32)


def integer_matmul(
    x: Float32, q: npt.NDArray[np.int8], scales: Float32, group: int, bias: Float32 | None = None
) -> Float32:
    """x `[m, k]` rounded to bf16, q `[n, k]`, scales `[n, ceil(k / group)]`."""
    y = dot(round_bf16(x)[:, None, :], q[None, :, :], scales[None, :, :], group)
    return (y if bias is None else y + bias.astype(np.float64)).astype(np.float32)


def norm(x: Float32, weight: Float32, eps: float) -> Float32:
    """RMS norm of every group of len(weight) values of a row."""
    n = len(weight)
    groups = x.reshape(-1, n)
    inverse = 1.0 / np.sqrt(dot(groups, groups) / n + np.float64(np.float32(eps)))
    y = (groups.astype(np.float64) * inverse[:, None]) * weight.astype(np.float64)
    return y.astype(np.float32).reshape(x.shape)


def rope(x: Float32, indices: npt.NDArray[np.uint32], cosine: Float32, sine: Float32, head_dim: int) -> Float32:
    heads = x.reshape(len(x), -1, 2, head_dim // 2).astype(np.float64)
    c, s = (table[indices][:, None, :].astype(np.float64) for table in (cosine, sine))
    a, b = heads[:, :, 0], heads[:, :, 1]
    return np.stack([a * c - b * s, b * c + a * s], axis=2).astype(np.float32).reshape(x.shape)


def exp(x: Float64) -> Float64:
    safe = np.where(np.isnan(x), 0.0, np.clip(x, -700.0, 709.0))
    n = np.rint(safe * 1.4426950408889634)
    r = fma(n, -float.fromhex("0x1.62e42feep-1"), safe).reshape(x.shape)
    r = fma(n, -float.fromhex("0x1.a39ef35793c76p-33"), r).reshape(x.shape)
    p = np.full_like(r, 1.0 / 6227020800.0)
    for factorial in _FACTORIALS:
        p = fma(p, r, 1.0 / factorial).reshape(x.shape)
    y = np.ldexp(p, n.astype(np.int64))
    y = np.where(x < -700, 0.0, np.where(x > 709, np.inf, y))
    return np.where(np.isnan(x), x, y)


def silu(x: Float64) -> Float64:
    return x / (1.0 + exp(-x))


def gelu_tanh(x: Float64) -> Float64:
    u = 0.7978845608028654 * (x + 0.044715 * (x * x * x))
    return x / (1.0 + exp(-2.0 * u))


ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}


def glu(gate: Float32, up: Float32, activation: str = "silu") -> Float32:
    x = gate.astype(np.float64)
    return (ACTIVATIONS[activation](x) * up.astype(np.float64)).astype(np.float32)


def attend(q: Float32, k: Float32, v: Float32, mask: Float32, heads: int, kv_heads: int, scale: np.float32) -> Float32:
    """q `[m, heads * d]`; k, v `[columns, kv_heads * d]`, caches first; mask `[m, columns]`."""
    m, columns = mask.shape
    d = q.shape[1] // heads
    out = np.zeros((m, heads, d))
    for head in range(heads):
        kv = slice(head // (heads // kv_heads) * d, (head // (heads // kv_heads) + 1) * d)
        query = q[:, head * d : (head + 1) * d]
        score = dot(query[:, None, :], k[None, :, kv]) * np.float64(scale) + mask.astype(np.float64)
        p = exp(score - np.max(score, axis=1, keepdims=True))
        total = np.zeros(m)
        for t in range(columns):
            total = total + p[:, t]
            used = p[:, t] != 0
            if used.any():
                out[used, head] = fma(p[used, t, None], v[None, t, kv].astype(np.float64), out[used, head])
        out[:, head] /= total[:, None]
    return out.astype(np.float32).reshape(m, heads * d)
