"""A network of four tensors and a compiler for it, in plain loops: what a refit must give, from the rules' text alone.

wide     [6, 5, 3] int8, taps then channels, the first tap absent; scale and int32 bias entries, zero point 7
narrow   [4, 6] two nibble planes in two copies (the second of rows 2 and 3), fp32 entries, no bias but a zero point
lstm     [4, 8] fp32, column by column, at odd bytes;  lstm_bias [4] fp16
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from layouts.algebra import Digit, Layout, Piece
from layouts.scales import Scales
from layouts.stored import Bias, Copy, EngineLayout, Plane, Rect, StoredTensor
from pipeline.container.blob import weight_blob
from pipeline.refit.outside import outside_sha256
from tests.helpers.containers import save
from tests.helpers.generations import BUILDS

Weights = dict[str, npt.NDArray[np.float32]]
SHAPES = {"wide": (6, 5, 3), "wide_bias": (6,), "narrow": (4, 6), "lstm": (4, 8), "lstm_bias": (4,)}
BYTES = 900
WIDE, NARROW, AGAIN, LSTM, LSTM_BIAS = 16, 300, 400, 501, 700
ENTRY, BIAS, ZERO = 0.00037, np.float32(0.0021), 7
NARROW_FACTOR, NARROW_ZERO = 0.25, -3


def random_weights(seed: int) -> Weights:
    noise = np.random.default_rng(seed)
    return {name: noise.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def write_source(path: Path, weights: Weights) -> Path:
    save_file(weights, path)
    return path


def compiled(path: Path, weights: Weights, generation: str = "7.0", version: int = 0) -> Path:
    """An engine file; engines of one `version` are equal outside their weights."""
    blob = bytearray(np.random.default_rng(version).bytes(BYTES))
    _wide(blob, weights["wide"], weights["wide_bias"])
    _narrow(blob, weights["narrow"])
    for r in range(4):
        for k in range(8):
            struct.pack_into("<f", blob, LSTM + 4 * (r + 4 * k), weights["lstm"][r, k])
        struct.pack_into("<e", blob, LSTM_BIAS + 2 * r, weights["lstm_bias"][r])
    return save(BUILDS[generation]([bytes(blob)]), path)


def _quantized(row: npt.NDArray[np.float32]) -> tuple[np.float32, npt.NDArray[np.int64]]:
    scale = np.float32(np.abs(row).max()) / np.float32(127.5)
    return scale, np.clip(np.rint(row / scale), -128, 127).astype(np.int64)


def _wide(blob: bytearray, weights: npt.NDArray[np.float32], bias: npt.NDArray[np.float32]) -> None:
    for r in range(6):
        at = WIDE + 40 * r
        scale, q = _quantized(np.array([weights[r, c, tap] for tap in range(3) for c in range(5)], np.float32))
        struct.pack_into("<10b", blob, at, *q[5:])
        struct.pack_into("<f", blob, at + 12, np.float32(float(scale) * ENTRY))
        steps = int(np.rint(bias[r] / np.float32(scale * BIAS)))
        struct.pack_into("<i", blob, at + 16, steps - ZERO * int(q[5:].sum()))


def _narrow(blob: bytearray, weights: npt.NDArray[np.float32]) -> None:
    for r in range(4):
        scale, q = _quantized(weights[r])
        entry = np.float32(float(scale) * NARROW_FACTOR)
        bias = np.float32(-NARROW_ZERO * int(q.sum()) * float(entry))
        for at in (NARROW + 16 * r, AGAIN + 20 * (r - 2)) if r >= 2 else (NARROW + 16 * r,):
            for j in range(3):
                low, high = int(q[2 * j]), int(q[2 * j + 1])
                blob[at + j] = (low & 15) | (high & 15) << 4
                blob[at + 3 + j] = ((low >> 4) + 8) | ((high >> 4) + 8) << 4
            struct.pack_into("<ff", blob, at + 8, entry, bias)


def network_layout(engine: Path) -> EngineLayout:
    """The layout of an engine of `compiled`; names the engine."""
    blob = weight_blob(engine)
    lstm = Layout((4, 8), 8 * LSTM, (Digit(4, 32),), (Digit(8, 128),), 32)
    vector = Layout((1, 4), 8 * LSTM_BIAS, (), (Digit(4, 16),), 16)
    tensors = (
        _wide_layout(),
        _narrow_layout(),
        StoredTensor("lstm", (4, 8), "fp32", (Copy("only", (_plane(lstm),)),)),
        StoredTensor("lstm_bias", (1, 4), "fp16", (Copy("only", (_plane(vector),)),)),
    )
    layout = EngineLayout("model", blob.name, blob.size, tensors, blob.offset)
    return replace(layout, outside=outside_sha256(engine, layout))


def _wide_layout() -> StoredTensor:
    rows, base = (Digit(6, 8 * 40),), 8 * WIDE
    q = Plane((Piece(0, 5, Layout((6, 10), base, rows, (Digit(10, 8),), 8)),))
    entries, bias = (_plane(Layout((6, 1), base + 8 * at, rows, (), 32)) for at in (12, 16))
    return StoredTensor(
        "wide",
        (6, 15),
        "s8",
        (Copy("only", (q,), entries, bias, (Rect(0, 0, 6, 5),)),),
        Scales("fp32", 15, 127.5, True, ENTRY, 1e-10),
        bias=Bias("wide_bias", "int32", float(BIAS), ZERO),
        dims=SHAPES["wide"],
        order=(0, 2, 1),
    )


def _narrow_layout() -> StoredTensor:
    copies = (_narrow_copy("decode", 8 * NARROW, 0, 4, 16), _narrow_copy("prefill", 8 * AGAIN, 2, 2, 20))
    scales = Scales("fp32", 6, 127.5, True, NARROW_FACTOR, 1e-10)
    return StoredTensor("narrow", (4, 6), "s8", copies, scales, bias=Bias("", "fp32", NARROW_FACTOR, NARROW_ZERO))


def _narrow_copy(name: str, base: int, first: int, rows: int, stride: int) -> Copy:
    step = (Digit(rows, 8 * stride),)
    fine, coarse = (Layout((rows, 6), base + 24 * plane, step, (Digit(6, 4),), 4) for plane in (0, 1))
    entries, bias = (_plane(Layout((rows, 1), base + 8 * at, step, (), 32), first) for at in (8, 12))
    planes = (_plane(fine, first), Plane((Piece(first, 0, coarse),), 4, 4, 8))
    return Copy(name, planes, entries, bias)


def _plane(layout: Layout, row: int = 0) -> Plane:
    return Plane((Piece(row, 0, layout),))
