"""The reference compiler: the stand-in for the vendor's closed one.

Takes a checkpoint and the vendor's own flags, writes the vendor's file names and real `.axmodel` containers with weights at
places that follow from the configuration and `layout_seed` alone. The same arguments give the same bytes.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from layouts.atomic import write_beside
from layouts.codecs import codec as find_codec
from layouts.stored import Copy, Plane, StoredTensor
from layouts.view import write_tensor
from pipeline.axmodel.walk import EngineIo
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.engineset.names import EMBEDDING_FILE, layer_file, post_file
from pipeline.model import EMBEDDING, POST, ModelConfig, TensorSpec, architecture_of
from pipeline.toolchain.container import Group, build_container
from pipeline.toolchain.memory_map import Item, MemoryMap, Placed, draw_map
from pipeline.toolchain.options import REFERENCE_VERSION, CompileOptions
from pipeline.toolchain.program import ROPE_COS, ROPE_SIN, Operand, layer_program, post_program

TABLE_CODEC = "fp32"
EMBEDDING_ROWS = 4096

Blob = npt.NDArray[np.uint8]


class ReferenceCompiler:
    """Compiles the engines of one model; `engine` methods return nothing and write one file each, all or nothing."""

    def __init__(self, checkpoint: Checkpoint, output: Path, options: CompileOptions) -> None:
        self.checkpoint, self.output, self.options = checkpoint, output, options
        self.config = checkpoint.config
        self.architecture = architecture_of(self.config)
        self._codec = find_codec("bf16_truncated" if options.rounding == "truncate" else options.weight_type)
        self._layer_map = draw_map(self._layer_items(), options.layout_seed, "layer", copies=True)
        self._post_map = draw_map([self._item(spec) for spec in POST], options.layout_seed, "post", copies=False)

    def compile(self) -> list[Path]:
        """Every engine and the embedding, in the order of the vendor's compiler; the files written."""
        layers = [self.compile_layer(layer) for layer in range(self.config.num_hidden_layers)]
        return [*layers, self.compile_post(), self.compile_embedding()]

    def compile_layer(self, layer: int) -> Path:
        names = {spec.name: spec.hf_name(layer) for spec in self.architecture.layer}
        blob = self._blob(self._layer_map, names, rope_tables(self.config, self.options.positions()))
        groups = [self._group(layer, 1, self.options.kv_cache_len, prefill=False)]
        groups += [
            self._group(layer, self.options.prefill_len, prefix, prefill=True) for prefix in self.options.ladder()
        ]
        path = self.output / layer_file(self.config, self.options.prefill_len, layer)
        return self._write(path, groups, blob)

    def compile_post(self) -> Path:
        blob = self._blob(self._post_map, {spec.name: spec.name for spec in POST}, {})
        program = post_program(self.config, self._operands(self._post_map, prefill=False))
        hidden = EngineIo("input", "BF16", (1, 1, self.config.hidden_size))
        logits = EngineIo("output", "BF16", (1, 1, self.config.vocab_size))
        path = self.output / post_file(self.config)
        return self._write(path, [Group((hidden,), (logits,), program.encode())], blob)

    def compile_embedding(self) -> Path:
        path, bf16 = self.output / EMBEDDING_FILE, find_codec("bf16")
        with write_beside(path) as file:
            for start in range(0, self.config.vocab_size, EMBEDDING_ROWS):
                rows = self.checkpoint.read(EMBEDDING.name, slice(start, start + EMBEDDING_ROWS))
                file.write(bf16.encode(rows).astype("<u2").tobytes())
        return path

    def _write(self, path: Path, groups: list[Group], blob: Blob) -> Path:
        container = build_container(groups, blob.tobytes(), REFERENCE_VERSION)
        with write_beside(path) as file:
            file.write(container.SerializeToString(deterministic=True))
        return path

    def _item(self, spec: TensorSpec) -> Item:
        shape = spec.shape(self.config)
        return Item(spec.name, shape if len(shape) == 2 else (1, shape[0]), self._codec.width)

    def _layer_items(self) -> list[Item]:
        table = (self.options.positions(), self.config.head_dim // 2)
        tables = [Item(name, table, 32, constant=True) for name in (ROPE_COS, ROPE_SIN)]
        return [self._item(spec) for spec in self.architecture.layer] + tables

    def _blob(self, memory: MemoryMap, names: dict[str, str], tables: dict[str, Float32]) -> Blob:
        blob = _gap_bytes(memory.size, memory.fill_seed)
        for placed in memory.placed.values():
            table = placed.item.name in tables
            values = tables[placed.item.name] if table else self.checkpoint.read(names[placed.item.name])
            codec = find_codec(TABLE_CODEC) if table else self._codec
            _place(blob, placed, codec.encode(values.reshape(placed.item.shape)))
        return blob

    def _operands(self, memory: MemoryMap, prefill: bool) -> dict[str, Operand]:
        return {
            name: Operand(
                TABLE_CODEC if placed.item.constant else self.options.weight_type,
                placed.item.shape,
                placed.prefill() if prefill else placed.decode,
            )
            for name, placed in memory.placed.items()
        }

    def _group(self, layer: int, tokens: int, history: int, prefill: bool) -> Group:
        program = layer_program(self.config, self._operands(self._layer_map, prefill), layer, tokens, history)
        kv, hidden = self.config.kv_width, self.config.hidden_size
        cache = (1, max(history, 1), kv)
        inputs = (
            EngineIo("K_cache", "BF16", cache),
            EngineIo("V_cache", "BF16", cache),
            EngineIo("indices", "U32", (1, tokens)),
            EngineIo("input", "BF16", (1, tokens, hidden)),
            EngineIo("mask", "BF16", (1, tokens, history + tokens)),
        )
        outputs = (
            EngineIo("K_cache_out", "BF16", (1, tokens, kv)),
            EngineIo("V_cache_out", "BF16", (1, tokens, kv)),
            EngineIo("output", "BF16", (1, tokens, hidden)),
        )
        return Group(inputs, outputs, program.encode())


def rope_tables(config: ModelConfig, positions: int) -> dict[str, Float32]:
    """cos and sin of position * theta^(-2i/d), `[positions, head_dim / 2]` each, rounded once to float32."""
    half = config.head_dim // 2
    steps = [config.rope_theta ** (-i / half) for i in range(half)]
    angles = [position * step for position in range(positions) for step in steps]
    return {
        name: np.fromiter(map(function, angles), np.float64, len(angles)).astype(np.float32).reshape(positions, half)
        for name, function in ((ROPE_COS, math.cos), (ROPE_SIN, math.sin))
    }


def _gap_bytes(size: int, seed: int) -> Blob:
    """What lies between tensors: constant bytes, half of them zero, the same for every checkpoint."""
    state = np.random.Generator(np.random.PCG64(seed))
    noise = state.integers(0, 256, size=1 << 16, dtype=np.uint8)
    noise[: 1 << 15] = 0
    return np.resize(noise, size)


def _place(blob: Blob, placed: Placed, raw: npt.NDArray[np.unsignedinteger]) -> None:
    copies = [Copy("decode", (Plane(placed.decode),))]
    if placed.copy:
        copies.append(Copy("prefill", (Plane(placed.copy),)))
    codec = "bf16" if placed.item.width == 16 else "fp32"
    write_tensor(blob, StoredTensor(placed.item.name, placed.item.shape, codec, tuple(copies)), raw)


def compile_model(checkpoint: Checkpoint, output: Path, options: CompileOptions) -> list[Path]:
    """Compile `checkpoint` into `output` (created). Returns the files: layers, post, embedding."""
    output.mkdir(parents=True, exist_ok=True)
    return ReferenceCompiler(checkpoint, output, options).compile()
