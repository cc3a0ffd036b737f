"""A GGUF byte by byte, so that a test can make any part of it wrong."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.checkpoint.slots import model_slots
from pipeline.model import ModelConfig
from tests.helpers.tiny import gguf_order

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


@dataclass
class Tensor:
    """`dims` as stored, fastest first. `offset` None places the tensor after the one before it."""

    name: str
    dims: list[int]
    type_id: int
    data: bytes
    offset: int | None = None


@dataclass
class GgufBytes:
    """All parts of a file; `keys` maps a key to (type, value), arrays to (ARRAY, (type, values))."""

    keys: dict[str, tuple[int, Any]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    order: str = "<"
    alignment: int = 32
    tensor_count: int | None = None
    kv_count: int | None = None
    extra_keys: bytes = b""
    tail: bytes = b""

    def pack(self, code: str, *values: Any) -> bytes:
        return struct.pack(self.order + code, *values)

    def string(self, text: str | bytes) -> bytes:
        raw = text.encode() if isinstance(text, str) else text
        return self.pack("Q", len(raw)) + raw

    def value(self, kind: int, value: Any) -> bytes:
        if kind == STRING:
            return self.string(value)
        if kind == ARRAY:
            element, values = value
            return self.pack("IQ", element, len(values)) + b"".join(self.value(element, v) for v in values)
        return self.pack(_CODES[kind], value)

    def key(self, name: str | bytes, kind: int, value: Any) -> bytes:
        return self.string(name) + self.pack("I", kind) + self.value(kind, value)

    def build(self) -> bytes:
        header = self.magic + self.pack(
            "IQQ",
            self.version,
            len(self.tensors) if self.tensor_count is None else self.tensor_count,
            len(self.keys) if self.kv_count is None else self.kv_count,
        )
        header += b"".join(self.key(name, *value) for name, value in self.keys.items()) + self.extra_keys
        data = b""
        for tensor in self.tensors:
            offset = tensor.offset
            if offset is None:
                data += bytes(-len(data) % self.alignment)
                offset = len(data)
                data += tensor.data
            header += self.string(tensor.name) + self.pack("I", len(tensor.dims))
            header += self.pack(f"{len(tensor.dims)}Q", *tensor.dims) + self.pack("IQ", tensor.type_id, offset)
        return header + bytes(-len(header) % self.alignment) + data + self.tail

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path


def f32(name: str, values: npt.NDArray[np.float32]) -> Tensor:
    """A little-endian F32 tensor of rows-first values."""
    return Tensor(name, list(values.shape[::-1]), 0, values.astype("<f4").tobytes())


def model_gguf(config: ModelConfig, weights: dict[str, npt.NDArray[np.float32]]) -> GgufBytes:
    """A sound F32 model of HF-named weights, to be spoilt."""
    a = config.architecture
    keys = {
        "general.architecture": (STRING, a),
        f"{a}.block_count": (U32, config.num_hidden_layers),
        f"{a}.context_length": (U32, config.max_position_embeddings),
        f"{a}.embedding_length": (U32, config.hidden_size),
        f"{a}.feed_forward_length": (U32, config.intermediate_size),
        f"{a}.attention.head_count": (U32, config.num_attention_heads),
        f"{a}.attention.head_count_kv": (U32, config.num_key_value_heads),
        f"{a}.attention.key_length": (U32, config.head_dim),
        f"{a}.attention.layer_norm_rms_epsilon": (F32, config.rms_norm_eps),
        f"{a}.rope.freq_base": (F32, config.rope_theta),
    }
    slots = [slot for slot in model_slots(config) if slot.name in weights]
    return GgufBytes(keys, [f32(slot.gguf, gguf_order(weights[slot.name], slot, config)) for slot in slots])
