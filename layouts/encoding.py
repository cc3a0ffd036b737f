"""What a tensor stores for given float32 values, whatever its codec, and what stored bits stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32, codec
from layouts.errors import LayoutError
from layouts.integers import INTEGERS, IntegerCodec, integer_codec
from layouts.quantize import dequantize, quantize, refit_scales, search_scales
from layouts.scales import Scales, entry_codec
from layouts.stored import StoredTensor

Raw = npt.NDArray[Any]

CHOICES: dict[str, Callable[[Float32, Scales, IntegerCodec], Float32]] = {
    "refit": refit_scales,
    "search": search_scales,
}
"""Ways to choose scales from values (docs/quantization.md)."""


@dataclass(frozen=True)
class Encoded:
    """Rows of a tensor as stored: `raw` `[rows, cols]`; scale entries `[rows, groups]` for integer codecs, else None."""

    raw: Raw
    entries: Raw | None = None
    clipped: int = 0


def encode_rows(stored: StoredTensor, values: Float32, choice: str = "refit", given: Float32 | None = None) -> Encoded:
    """Encode whole rows.

    Parameters
    ----------
    values : float32 `[rows, cols]`
    choice : how scales are chosen (`CHOICES`); float codecs ignore it
    given : the scales to use instead, float32 `[rows, groups]`, such as an engine's own

    Raises
    ------
    LayoutError : a value that the codec cannot hold; ScaleRefused for a scale entry that would be 0 or infinite
    """
    if stored.scales is None:
        return Encoded(codec(stored.codec).encode(values))
    kind, scales = integer_codec(stored.codec), stored.scales
    held = CHOICES[choice](values, scales, kind) if given is None else given
    expected = (len(values), scales.groups(values.shape[1]))
    if held.shape != expected:
        raise LayoutError("scales of another shape", where=stored.name, expected=list(expected), found=list(held.shape))
    entries = entry_codec(scales.entry).encode(held)
    q, clipped = quantize(values, held, scales, kind)
    return Encoded(kind.to_raw(q), entries, clipped)


def decode_rows(stored: StoredTensor, encoded: Encoded) -> Float32:
    """The float32 values that stored rows stand for, exact."""
    if stored.scales is None:
        return codec(stored.codec).decode(encoded.raw)
    if encoded.entries is None:
        raise LayoutError("no scale entries", where=stored.name)
    q = integer_codec(stored.codec).from_raw(encoded.raw)
    return dequantize(q, entry_codec(stored.scales.entry).decode(encoded.entries), stored.scales)


def raw_dtype(name: str) -> type[np.unsignedinteger[Any]]:
    """The NumPy type of a codec's stored integers."""
    return INTEGERS[name].raw_dtype if name in INTEGERS else codec(name).raw_dtype
