"""docs/numerics.md in NumPy, to the bit: the oracle of the simulator. Slow, obvious, and importing nothing of ours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
RUN = 128
_EXP_COEFFICIENTS = (1.38888889e-3, 8.33333333e-3, 4.16666667e-2, 1.66666667e-1, 0.5, 1.0, 1.0)


def fma(a: Float32, b: Float32, c: Float32) -> Float32:
    """a * b + c rounded once to float32.

    The product is exact in float64; the sum is rounded to odd there, so that rounding it again to float32 is right.
    """
    product = np.float64(a) * np.float64(b)
    addend = np.float64(c)
    total = np.atleast_1d(product + addend)
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where(inexact, bits + step, bits).view(np.float64)
    return odd.astype(np.float32).reshape(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c)))


def dot(x: Float32, w: Float32) -> Float32:
    """Dot products over the last axis, which both broadcast to."""
    x, w = np.broadcast_arrays(x, w)
    sums = []
    for start in range(0, x.shape[-1], RUN):
        acc = np.zeros(x.shape[:-1], np.float32)
        for k in range(start, min(start + RUN, x.shape[-1])):
            acc = fma(x[..., k], w[..., k], acc)
        sums.append(acc)
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
    return y if bias is None else y + bias


def norm(x: Float32, weight: Float32, eps: float) -> Float32:
    """RMS norm of every group of len(weight) values of a row."""
    n = len(weight)
    groups = x.reshape(-1, n)
    mean = dot(groups, groups) / np.float32(n)
    inverse = np.float32(1) / np.sqrt(mean + np.float32(eps))
    return ((groups * inverse[:, None]) * weight).reshape(x.shape)


def rope(x: Float32, indices: npt.NDArray[np.uint32], cosine: Float32, sine: Float32, head_dim: int) -> Float32:
    heads = x.reshape(len(x), -1, 2, head_dim // 2)
    c, s = cosine[indices][:, None, :], sine[indices][:, None, :]
    a, b = heads[:, :, 0], heads[:, :, 1]
    return np.stack([fma(a, c, -(b * s)), fma(b, c, a * s)], axis=2).reshape(x.shape)


def exp(x: Float32) -> Float32:
    low, high = np.float32(-104), np.float32(88.72)
    safe = np.where(np.isnan(x), np.float32(0), np.clip(x, low, high)).astype(np.float32)
    n = np.rint(safe * np.float32(1.44269504))
    r = fma(n, np.float32(-0.693145751953125), safe)
    r = fma(n, np.float32(-1.42860677e-6), r)
    p = np.full_like(r, 1.98412698e-4)
    for c in _EXP_COEFFICIENTS:
        p = fma(p, r, np.float32(c))
    half = np.trunc(n / 2)
    y = p * np.exp2(half) * np.exp2(n - half)
    y = np.where(x < low, np.float32(0), np.where(x > high, np.float32(np.inf), y))
    return np.where(np.isnan(x), x, y).astype(np.float32)


def silu(x: Float32) -> Float32:
    return x / (np.float32(1) + exp(-x))


def attend(q: Float32, k: Float32, v: Float32, mask: Float32, heads: int, kv_heads: int, scale: np.float32) -> Float32:
    """q `[m, heads * d]`; k, v `[columns, kv_heads * d]`, caches first; mask `[m, columns]`."""
    m, columns = mask.shape
    d = q.shape[1] // heads
    out = np.zeros((m, heads, d), np.float32)
    for head in range(heads):
        kv = slice(head // (heads // kv_heads) * d, (head // (heads // kv_heads) + 1) * d)
        query = q[:, head * d : (head + 1) * d]
        score = fma(scale, dot(query[:, None, :], k[None, :, kv]), mask)
        p = exp(score - np.max(score, axis=1, keepdims=True))
        total = np.zeros(m, np.float32)
        for t in range(columns):
            total = total + p[:, t]
            used = p[:, t] != 0
            out[used, head] = fma(p[used, t, None], v[None, t, kv], out[used, head])
        out[:, head] /= total[:, None]
    return out.reshape(m, heads * d)
