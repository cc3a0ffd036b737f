"""What a tensor stores for given float32 values, whatever its codec, and what stored bits stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.bias import bias_entries
from layouts.codecs import Float32, codec
from layouts.entry_codecs import Held, entry_codec
from layouts.errors import LayoutError
from layouts.integers import INTEGERS, IntegerCodec, integer_codec
from layouts.quantize import dequantize, quantize, refit_scales, search_scales
from layouts.scales import Scales
from layouts.stored import StoredTensor

Raw = npt.NDArray[Any]

CHOICES: dict[str, Callable[[Float32, Scales, IntegerCodec], Held]] = {
    "refit": refit_scales,
    "search": search_scales,
}
"""Ways to choose scales from values (docs/quantization.md)."""


@dataclass(frozen=True)
class Encoded:
    """Rows of a tensor as stored.

    raw : integers `[rows, cols]`; those of absent elements are 0 when read, and not written
    entries : scale entries `[rows, groups]` for integer codecs, else None
    bias : bias entries, uint32 `[rows, 1]`, where the tensor has some
    """

    raw: Raw
    entries: Raw | None = None
    clipped: int = 0
    bias: Raw | None = None

    def rows(self, part: slice) -> Encoded:
        """Some of the rows; what is clipped is not counted for them."""
        entries, bias = (None if beside is None else beside[part] for beside in (self.entries, self.bias))
        return Encoded(self.raw[part], entries, bias=bias)


def encode_rows(
    stored: StoredTensor,
    values: Float32,
    choice: str = "refit",
    given: Held | None = None,
    bias: Float32 | None = None,
    first_row: int = 0,
) -> Encoded:
    """Encode whole rows.

    Parameters
    ----------
    values : float32 `[rows, cols]`
    choice : how scales are chosen (`CHOICES`); float codecs ignore it
    given : the scales to use instead, float32 `[rows, groups]`, such as an engine's own; affine ones are float64 `[rows, 2]`
    bias : float32 `[rows]`, of a tensor whose bias has a name, and of no other
    first_row : of the tensor; matters where bias entries depend on which elements are absent

    Raises
    ------
    LayoutError : a value that the codec cannot hold; ScaleRefused for a scale entry that would be 0 or infinite, BiasRefused
        for a bias entry that does not fit
    """
    if stored.scales is None:
        return with_bias(stored, Encoded(codec(stored.codec).encode(values)), bias)
    kind, scales = integer_codec(stored.codec), stored.scales
    held = CHOICES[choice](values, scales, kind) if given is None else given
    expected = (len(values), scales.groups(values.shape[1]))
    if held.shape != expected:
        raise LayoutError("scales of another shape", where=stored.name, expected=list(expected), found=list(held.shape))
    entries = scales.encode(held)
    q, clipped = quantize(values, held, scales, kind)
    encoded = Encoded(kind.to_raw(q), entries, clipped)
    return with_bias(stored, encoded, bias, first_row, held)


def with_bias(
    stored: StoredTensor, encoded: Encoded, bias: Float32 | None, first_row: int = 0, held: Held | None = None
) -> Encoded:
    """Encoded rows from `first_row` on with the bias entries that follow from them, none where the tensor has none.

    Parameters
    ----------
    bias : float32 `[rows]`, None where the tensor's bias has no name
    held : the scales that the entries were made from, as `given` of `encode_rows`; what the entries say when None

    Raises LayoutError for a bias too many, none or of another shape, BiasRefused for an entry that does not fit.
    """
    if stored.bias is None or stored.scales is None or encoded.entries is None:
        if bias is not None:
            raise LayoutError("no bias entries", where=stored.name)
        return encoded
    rows = len(encoded.raw)
    if (bias is None) != (stored.bias.tensor == "") or (bias is not None and bias.shape != (rows,)):
        expected = f"[{rows}] of {stored.bias.tensor}" if stored.bias.tensor else "none"
        found = None if bias is None else list(bias.shape)
        raise LayoutError("bias of another shape", where=stored.name, expected=expected, found=found)
    held = stored.scales.decode(encoded.entries) if held is None else held
    q = integer_codec(stored.codec).from_raw(encoded.raw).astype(np.int16)
    if stored.scales.affine:
        q -= held[:, 1:].astype(np.int16)
    if stored.bias.zero_point:
        for window in stored.copies[0].absent_windows(first_row, first_row + rows):
            q[window] = 0
    entries = entry_codec(stored.scales.entry).decode(encoded.entries)[:, 0]
    given = np.zeros(rows, np.float32) if bias is None else bias
    return replace(encoded, bias=bias_entries(stored.bias, q, held[:, 0], entries, given))


def decode_rows(stored: StoredTensor, encoded: Encoded) -> Float32:
    """The float32 values that stored rows stand for, exact."""
    if stored.scales is None:
        return codec(stored.codec).decode(encoded.raw)
    if encoded.entries is None:
        raise LayoutError("no scale entries", where=stored.name)
    q = integer_codec(stored.codec).from_raw(encoded.raw)
    return dequantize(q, stored.scales.decode(encoded.entries), stored.scales)


def raw_dtype(name: str) -> type[np.unsignedinteger[Any]]:
    """The NumPy type of a codec's stored integers."""
    return INTEGERS[name].raw_dtype if name in INTEGERS else codec(name).raw_dtype
