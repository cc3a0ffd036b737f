"""The control: a forward pass in NumPy, straight from the GGUF, that shares no code with the way it judges.

Names and shapes come from the `gguf` package alone, weights from its dequantization and from a second implementation of
docs/quantization.md; nothing of `layouts` or `pipeline.refit` is imported (tests/pipeline/evaluate/test_control.py checks it).
Every operation is float64 and rounded to float32 once, as docs/numerics.md says, with bf16 where engines have it. A float64
sum rounds to the same float32 in practically any order, so BLAS may add as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from pipeline.errors import CheckpointError
from pipeline.evaluate.control_dimensions import Dimensions
from pipeline.evaluate.control_quantize import Quantization
from pipeline.evaluate.control_weights import EMBEDDING, FINAL_NORM, HEAD, Change, Source, stored_weights

Array = npt.NDArray[Any]

BLOCK_ROWS = 4096
BLOCK_TOKENS = 256


class Control(Dimensions):
    """The model of one GGUF.

    Parameters
    ----------
    path : a llama, qwen2, qwen3 or gemma3 GGUF of any tensor types
    how : what the engines' weights are; bf16 throughout by default
    exact : float64 without any rounding, instead of an engine's arithmetic
    change : what is done to a tensor (GGUF name, float32) before it is stored, such as the merge of an adapter
    kept : rows of the head that are there; all by default
    base : the GGUF whose scales the engines keep

    Raises
    ------
    MissingFileError : no such file
    CheckpointError : not a GGUF, another architecture, or a tensor or a key is absent
    """

    def __init__(
        self,
        path: str | Path,
        how: Quantization | None = None,
        *,
        exact: bool = False,
        change: Change | None = None,
        kept: Sequence[int] | None = None,
        base: str | Path | None = None,
    ) -> None:
        source = Source(path, change)
        super().__init__(source.path, source.fields)
        self.exact = exact
        factor = np.sqrt(np.float32(self.hidden)) if self.scaled_embedding else None
        stored = None if exact else how or Quantization()
        self._weights = stored_weights(source, stored, factor, kept, Source(base) if base else None)

    def weight(self, name: str) -> Array:
        """A tensor under its GGUF name: bf16 where engines store that, float32 otherwise."""
        if name not in self._weights:
            raise CheckpointError("tensor is absent", file=self.path, where=name)
        return self._weights[name]

    def vector(self, name: str) -> Array:
        """A norm or a bias in float64."""
        return wide(self.weight(name))

    def has(self, name: str) -> bool:
        return name in self._weights

    def single(self, x: Array) -> Array:
        """What a register keeps of a float64 result."""
        return x if self.exact else x.astype(np.float32)

    def half(self, x: Array) -> Array:
        """To bf16, nearest even, and back."""
        return x if self.exact else x.astype(ml_dtypes.bfloat16).astype(np.float32)

    def project(self, x: Array, name: str) -> Array:
        """`x` times a matrix under its GGUF name, plus its bias if it has one."""
        weight, bias = self.weight(name), name.removesuffix("weight") + "bias"
        operand = self.half(x).astype(np.float64)
        out = np.empty((len(x), len(weight)), np.float64 if self.exact else np.float32)
        offset = self.vector(bias) if self.has(bias) else np.zeros(len(weight))
        for start in range(0, len(weight), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            out[:, rows] = operand @ wide(weight[rows]).T + offset[rows]
        return out

    def norm(self, x: Array, name: str) -> Array:
        """RMS norm over the last axis."""
        wide = x.astype(np.float64)
        inverse = 1 / np.sqrt(np.mean(wide * wide, axis=-1, keepdims=True) + self.eps)
        return self.single(wide * inverse * self.vector(name))

    def activated(self, x: Array) -> Array:
        """silu, or gelu by its tanh approximation; float64."""
        u = 0.7978845608028654 * (x + 0.044715 * (x * x * x)) * 2 if self.gelu else x
        with np.errstate(over="ignore"):
            activated: Array = x / (1 + np.exp(-u))
        return activated

    def start(self) -> Session:
        """An empty sequence."""
        return Session(self)

    def logits(self, tokens: Sequence[int]) -> Array:
        """Teacher-forced logits `[len(tokens), vocab]`: row i follows tokens 0 to i."""
        return self.start().feed(tokens)

    def greedy(self, prompt: Sequence[int], n: int, is_end: Callable[[int], bool] = lambda token: False) -> list[int]:
        """Up to `n` most likely tokens, the lowest id among equals, ending before an end token."""
        session, out = self.start(), list[int]()
        token = int(session.feed(prompt, last_only=True)[-1].argmax())
        while not is_end(token):
            out.append(token)
            if len(out) == n:
                break
            token = int(session.feed([token])[-1].argmax())
        return out


def wide(values: Array) -> npt.NDArray[np.float64]:
    """To float64; by way of float32, since the direct conversion of bf16 takes seven times as long."""
    return values.astype(np.float32).astype(np.float64)


class Session:
    """One sequence of tokens and its keys and values, `[kv heads, tokens, head_dim]` per layer."""

    def __init__(self, model: Control) -> None:
        self.model, self.position = model, 0
        empty = np.empty((model.kv_heads, 0, model.head_dim))
        self._keys = [empty] * model.layers
        self._values = [empty] * model.layers

    def feed(self, tokens: Sequence[int], last_only: bool = False) -> Array:
        """Append `tokens`; their logits `[len(tokens), vocab]`, or those of the last one."""
        model = self.model
        rows = model.weight(EMBEDDING)[np.asarray(tokens, np.int64)]
        x = rows.astype(np.float64 if model.exact else np.float32)
        for layer in range(model.layers):
            x = model.half(self._layer(x, f"blk.{layer}", layer))
        self.position += len(tokens)
        x = model.norm(x[-1:] if last_only else x, FINAL_NORM)
        return model.half(model.project(x, HEAD))

    def _layer(self, x: Array, block: str, layer: int) -> Array:
        model = self.model
        h = model.norm(x, f"{block}.attn_norm.weight")
        x = x + self._after(
            model.project(self._attention(h, block, layer), f"{block}.attn_output.weight"),
            f"{block}.post_attention_norm",
        )
        h = model.norm(x, f"{block}.ffn_norm.weight")
        gate, up = (model.project(h, f"{block}.ffn_{part}.weight").astype(np.float64) for part in ("gate", "up"))
        product = model.single(model.activated(gate) * up)
        return x + self._after(model.project(product, f"{block}.ffn_down.weight"), f"{block}.post_ffw_norm")

    def _after(self, x: Array, norm: str) -> Array:
        """Through the norm that some models have behind each half of a layer."""
        return self.model.norm(x, f"{norm}.weight") if self.model.has(f"{norm}.weight") else x

    def _heads(self, h: Array, name: str, count: int) -> Array:
        x = self.model.project(h, f"{name}.weight").reshape(len(h), count, self.model.head_dim)
        if self.model.has(f"{name}_norm.weight"):
            x = self.model.norm(x, f"{name}_norm.weight")
        return x.transpose(1, 0, 2).astype(np.float64)

    def _attention(self, h: Array, block: str, layer: int) -> Array:
        model = self.model
        q = model.half(self._rope(self._heads(h, f"{block}.attn_q", model.heads), layer)).astype(np.float64)
        k = model.half(self._rope(self._heads(h, f"{block}.attn_k", model.kv_heads), layer))
        v = model.half(self._heads(h, f"{block}.attn_v", model.kv_heads))
        keys = self._keys[layer] = np.concatenate([self._keys[layer], k], axis=1)
        values = self._values[layer] = np.concatenate([self._values[layer], v], axis=1)
        group = model.heads // model.kv_heads
        # one head after the other: BLAS has threads of its own, which callers in parallel make wait for each other
        window = model.window(layer)
        heads = [self._attend(q[i], keys[i // group], values[i // group], window) for i in range(model.heads)]
        return np.concatenate(heads, axis=1)

    def _attend(self, q: Array, k: Array, v: Array, window: int) -> Array:
        """One head: q `[n, d]`, k and v `[t, d]`; row i sees the last `window` of columns 0 to `position` + i, 0 for all."""
        scale = 1 / np.sqrt(q.shape[1])
        scale = scale if self.model.exact else np.float64(np.float32(scale))
        out = np.empty((len(q), v.shape[1]))
        for start in range(0, len(q), BLOCK_TOKENS):
            rows = q[start : start + BLOCK_TOKENS]
            first = self.position + start
            seen = first + len(rows)
            scores = rows @ k[:seen].T * scale
            distance = np.arange(first, seen)[:, None] - np.arange(seen)
            scores[(distance < 0) | (distance >= (window or seen))] = -np.inf
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[start : start + len(rows)] = p @ v[:seen] / p.sum(axis=1, keepdims=True)
        return self.model.single(out)

    def _rope(self, x: Array, layer: int) -> Array:
        """Rotate pairs: neighbours where the converter interleaved the rows, halves elsewhere."""
        model = self.model
        half, base = model.head_dim // 2, model.sliding_rope_base if model.window(layer) else model.rope_base
        inverse = np.array([base ** (-i / half) for i in range(half)])
        angle = np.outer(self.position + np.arange(x.shape[1]), inverse)
        cos, sin = (model.single(table).astype(np.float64) for table in (np.cos(angle), np.sin(angle)))
        neighbours = np.s_[..., 0::2], np.s_[..., 1::2]
        a, b = neighbours if model.interleaved else (np.s_[..., :half], np.s_[..., half:])
        out = np.empty_like(x)
        out[a] = x[a] * cos - x[b] * sin
        out[b] = x[b] * cos + x[a] * sin
        return model.single(out)
