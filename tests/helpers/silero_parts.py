"""Parts of a real engine, written down by hand from the facts: LSTM matrices and one convolution with its entries."""

from __future__ import annotations

from dataclasses import replace

from layouts.algebra import Digit, Layout, Piece
from layouts.scales import Scales
from layouts.stored import Bias, Copy, EngineLayout, Plane, StoredTensor
from pipeline.container.blob import weight_blob
from pipeline.refit.outside import outside_sha256
from tests.helpers.real_engines import silero_engine

CONVOLUTION, CONVOLUTION_BIAS = "model.encoder.1.reparam_conv.weight", "model.encoder.1.reparam_conv.bias"
HIDDEN = "model.decoder.rnn.weight_hh"
FACTOR = 0.0001690444041742012  # read off the engine: the same for scales and biases
BLOCK, SLOT, FIRST = 12928, 792, 401032


def part_layout() -> EngineLayout:
    """Of the AX650 engine: one LSTM matrix and the second convolution; names the engine."""
    engine = silero_engine("ax650")
    blob = weight_blob(engine)
    layout = EngineLayout("model", blob.name, blob.size, (_lstm(), _convolution()), blob.offset)
    return replace(layout, outside=outside_sha256(engine, layout))


def _lstm() -> StoredTensor:
    layout = Layout((512, 128), 0, (Digit(32, 32), Digit(16, 132096)), (Digit(128, 1024),), 32)
    return StoredTensor(HIDDEN, (512, 128), "fp32", (Copy("decode", (_plane(layout),)),))


def _convolution() -> StoredTensor:
    rows = (Digit(16, 8 * SLOT), Digit(2, 8 * 36), Digit(2, 8 * BLOCK))
    cols = (Digit(36, 4), Digit(11, 8 * 72))
    fine, coarse = (Layout((64, 384), 8 * (FIRST + plane), rows, cols, 4) for plane in (0, 18))
    planes = (_plane(fine), replace(_plane(coarse), low_bit=4, bits=4, bias=8))
    bias, entries = (_beside(FIRST + 16 * SLOT + at) for at in (0, 128))
    return StoredTensor(
        CONVOLUTION,
        (64, 384),
        "s8",
        (Copy("decode", planes, entries, bias),),
        Scales("fp32", 384, 127.5, True, FACTOR, 1e-10),
        bias=Bias(CONVOLUTION_BIAS, "fp32", FACTOR, 0),
        dims=(64, 128, 3),
        order=(0, 2, 1),
    )


def _beside(byte: int) -> Plane:
    return _plane(Layout((64, 1), 8 * byte, (Digit(32, 32), Digit(2, 8 * BLOCK)), (), 32))


def _plane(layout: Layout) -> Plane:
    return Plane((Piece(0, 0, layout),))
