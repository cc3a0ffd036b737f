"""Every tensor type: values against two other implementations, byte order, scales that are not finite."""

from __future__ import annotations

from pathlib import Path

import gguf
import libgguf
import numpy as np
import pytest

from pipeline.checkpoint.ggml_types import GGML_TYPES, GgmlType
from pipeline.checkpoint.gguf_checkpoint import GgufTensor
from pipeline.checkpoint.gguf_file import GgufFile
from pipeline.errors import NotFiniteError
from tests.helpers.gguf_bytes import GgufBytes, Tensor
from tests.helpers.tiny import quantized

BY_NAME = {kind.name: kind for kind in GGML_TYPES.values()}
SCALES = {  # byte offset of a 16-bit scale of the block
    "Q4_0": 0,
    "Q4_1": 0,
    "Q5_0": 0,
    "Q5_1": 2,
    "Q8_0": 0,
    "Q2_K": 82,
    "Q3_K": 108,
    "Q4_K": 0,
    "Q5_K": 2,
    "Q6_K": 208,
    "IQ4_NL": 0,
    "IQ4_XS": 0,
    "IQ2_XXS": 0,
    "IQ3_S": 0,
    "IQ1_S": 0,
    "TQ1_0": 52,
    "TQ2_0": 64,
}
HALF_NAN, HALF_INF = b"\x00\x7e", b"\x00\xfc"
# ggml has no quick encoder for these: random codes instead
RANDOM_CODES = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "NVFP4")


def random_rows(rows: int = 5, cols: int = 512) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((rows, cols)).astype(np.float32)


def tensor_of(path: Path, name: str, raw: bytes, cols: int, order: str = "<") -> GgufTensor:
    kind = BY_NAME[name]
    rows = len(raw) // (cols // kind.block * kind.nbytes)
    parts = GgufBytes(tensors=[Tensor("w", [cols, rows], kind.id, raw)], order=order)
    file = GgufFile(parts.write(path / f"{name}{'le' if order == '<' else 'be'}.gguf"))
    return GgufTensor(file, file.tensors["w"])


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_values_equal_other_implementations(tmp_path: Path, name):
    kind = gguf.GGMLQuantizationType[name]
    raw = random_codes(BY_NAME[name], 5) if name in RANDOM_CODES else quantized(random_rows(), kind).view(np.uint8)
    found = tensor_of(tmp_path, name, raw.tobytes(), 512).read(0, 5)
    np.testing.assert_array_equal(found, gguf.dequantize(raw, kind).reshape(5, 512))
    if name not in ("F32", "F16", "BF16"):
        np.testing.assert_allclose(found, libgguf.dequantize_rows(raw, int(kind)), rtol=1e-6, atol=1e-7)
    if name not in RANDOM_CODES:
        assert np.abs(found - random_rows()).mean() < 0.7


def random_codes(kind: GgmlType, rows: int) -> np.ndarray:
    """Bytes below 60 make every scale finite."""
    return np.random.default_rng(1).integers(0, 60, (rows, 512 // kind.block * kind.nbytes), np.uint8)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_row_ranges_equal_whole(tmp_path: Path, name):
    tensor = tensor_of(tmp_path, name, random_codes(BY_NAME[name], 7).tobytes(), 512)
    np.testing.assert_array_equal(tensor.read(2, 6), tensor.read(0, 7)[2:6])


def half(value: float) -> bytes:
    return np.float16(value).tobytes()


KNOWN = {
    "F16": (half(1.5) + half(-2) + half(6.1e-5), [1.5, -2, float(np.float16(6.1e-5))]),
    "BF16": (b"\xc0\x3f\x00\xc0\x01\x00", [1.5, -2, 2.0**-133]),
    "Q8_0": (half(0.5) + bytes([1, 0xFF, 0x80]) + bytes(29), [0.5, -0.5, -64] + [0] * 29),
    "Q4_1": (half(0.5) + half(-1) + b"\x2f" + bytes(15), [6.5] + [-1] * 15 + [0] + [-1] * 15),
    "Q5_K": (
        half(1) + half(1) + bytes([1, 0, 0, 0, 2]) + bytes(39) + b"\x03" + bytes(127),
        [1] + [-2] * 31 + [0] * 224,
    ),
    "IQ4_NL": (half(2) + b"\xf0" + bytes(15), [-254] * 16 + [226] + [-254] * 15),
    # e8m0 128 is 2.0; codes 1 and 9 are 0.5 and -0.5
    "MXFP4": (b"\x80\x91" + bytes(15), [1] + [0] * 15 + [-1] + [0] * 15),
    "TQ2_0": (b"\x06" + b"\x55" * 63 + half(3), [3] + [0] * 31 + [0] + [0] * 31 + [-3] + [0] * 31 + [-3] + [0] * 159),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_values(tmp_path: Path, name):
    raw, values = KNOWN[name]
    found = tensor_of(tmp_path, name, raw, len(values)).read(0, 1)[0]
    np.testing.assert_array_equal(found, np.array(values, np.float32))


@pytest.mark.parametrize("name", sorted(name for name, kind in BY_NAME.items() if kind.big_endian))
def test_big_endian_twin_is_equal(tmp_path: Path, name):
    kind = BY_NAME[name]
    raw = quantized(random_rows(), gguf.GGMLQuantizationType[name]).view(np.uint8)
    little = tensor_of(tmp_path, name, raw.tobytes(), 512)
    big = tensor_of(tmp_path, name, swapped(raw, kind).tobytes(), 512, ">")
    np.testing.assert_array_equal(big.read(0, 5), little.read(0, 5))


def swapped(raw: np.ndarray, kind: GgmlType) -> np.ndarray:
    """Written from the structure definitions of ggml, not from the table of the module under test."""
    if kind.name == "F32":
        return raw.view("<u4").astype(">u4").view(np.uint8)
    at = {"F16": [0], "BF16": [0], "Q4_1": [0, 2], "Q2_K": [80, 82], "Q4_K": [0, 2], "Q5_K": [0, 2], "MXFP4": []}
    blocks = raw.reshape(-1, kind.nbytes).copy()
    for offset in at.get(kind.name, [SCALES.get(kind.name, 0)]):
        blocks[:, offset : offset + 2] = blocks[:, offset : offset + 2][:, ::-1]
    return blocks


@pytest.mark.parametrize("scale", [HALF_NAN, HALF_INF], ids=["nan", "inf"])
@pytest.mark.parametrize("name", SCALES)
def test_scale_that_is_not_finite_names_its_block(tmp_path: Path, name, scale):
    kind = BY_NAME[name]
    per_row = 512 // kind.block
    raw = bytearray(4 * per_row * kind.nbytes)
    at = (2 * per_row + 1) * kind.nbytes + SCALES[name]
    raw[at : at + 2] = scale
    tensor = tensor_of(tmp_path, name, bytes(raw), 512)
    with pytest.raises(NotFiniteError, match=rf"w: byte \d+: .* in block {2 * per_row + 1}, .*row 2$") as caught:
        tensor.read(1, 4)
    assert caught.value.offset == tensor.info.offset + (2 * per_row + 1) * kind.nbytes
    assert np.isfinite(tensor.read(0, 2)).all() and np.isfinite(tensor.read(3, 4)).all()


@pytest.mark.parametrize(("name", "at", "byte"), [("MXFP4", 0, 0xFF), ("NVFP4", 3, 0x7F), ("NVFP4", 0, 0xFF)])
def test_nan_scale_of_one_byte(tmp_path: Path, name, at, byte):
    raw = bytearray(2 * BY_NAME[name].nbytes)
    raw[BY_NAME[name].nbytes + at] = byte
    with pytest.raises(NotFiniteError, match="NaN in block 1"):
        tensor_of(tmp_path, name, bytes(raw), 2 * BY_NAME[name].block).read(0, 1)
