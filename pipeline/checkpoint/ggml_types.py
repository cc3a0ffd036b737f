"""The tensor types of a GGUF that can be read: sizes, byte order and dequantization.

Sizes and dequantization come from the `gguf` package; what is listed here is what it dequantizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from pipeline.checkpoint.protocol import Float32

Bytes = npt.NDArray[np.uint8]

# type -> byte offsets of the 16-bit fields of a block, the only ones that depend on the byte order
_HALVES: dict[str, tuple[int, ...]] = {
    "F16": (0,),
    "BF16": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "MXFP4": (),
}
# Codes and signs of these are words whose byte order in big-endian files is nowhere defined.
_LITTLE_ENDIAN_ONLY = (
    *("Q5_0", "Q5_1", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS", "NVFP4"),
)
# type -> (scale bytes of a block, mask, the pattern that means NaN); the package reads them as numbers
_NAN_SCALES = {"MXFP4": (1, 0xFF, 0xFF), "NVFP4": (4, 0x7F, 0x7F)}


@dataclass(frozen=True)
class GgmlType:
    """One tensor type: `block` elements are stored in `nbytes` bytes."""

    id: int
    name: str
    block: int
    nbytes: int

    @property
    def big_endian(self) -> bool:
        """Whether big-endian files of this type can be read."""
        return self.name == "F32" or self.name in _HALVES

    def to_little_endian(self, raw: Bytes) -> Bytes:
        """A big-endian tensor's bytes as a little-endian file would hold them."""
        if self.name == "F32":
            return raw.view(np.uint32).byteswap().view(np.uint8)
        blocks = raw.reshape(-1, self.nbytes).copy()
        for at in _HALVES[self.name]:
            blocks[:, [at, at + 1]] = blocks[:, [at + 1, at]]
        return blocks.reshape(raw.shape)

    def dequantize(self, raw: Bytes) -> Float32:
        """Little-endian bytes of whole blocks to their float32 values, one dimension each way.

        A scale that is NaN or infinite makes values of its block NaN or infinite.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            values: Float32 = dequantize(raw.reshape(1, -1), GGMLQuantizationType(self.id)).reshape(-1)
        if self.name in _NAN_SCALES:
            scales, mask, nan = _NAN_SCALES[self.name]
            bad = (raw.reshape(-1, self.nbytes)[:, :scales] & mask == nan).any(axis=1)
            values.reshape(-1, self.block)[bad] = np.nan
        return values


GGML_TYPES: dict[int, GgmlType] = {
    kind.value: GgmlType(kind.value, kind.name, *GGML_QUANT_SIZES[kind])
    for kind in GGMLQuantizationType
    if kind.name in ("F32", *_HALVES, *_LITTLE_ENDIAN_ONLY)
}
