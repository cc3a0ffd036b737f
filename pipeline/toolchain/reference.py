"""The reference compiler: the stand-in for the vendor's closed one.

Takes a checkpoint and the vendor's own flags, writes the vendor's file names and real `.axmodel` containers with weights at
places that follow from the configuration and `layout_seed` alone. The same arguments give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from layouts.atomic import write_beside
from layouts.codecs import Codec, Raw
from layouts.codecs import codec as find_codec
from layouts.encoding import Encoded
from layouts.errors import LayoutError
from layouts.stored import Copy, Plane, StoredTensor
from layouts.view import write_tensor
from pipeline.axmodel.walk import EngineIo
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.engineset.names import EMBEDDING_FILE, layer_file, post_file
from pipeline.model import EMBEDDING, ModelConfig, TensorSpec, architecture_of
from pipeline.refit.refit import does_not_fit
from pipeline.toolchain.container import Group, frame_container
from pipeline.toolchain.memory_map import Item, MemoryMap, Placed, draw_map
from pipeline.toolchain.options import REFERENCE_VERSION, CompileOptions
from pipeline.toolchain.program import ROPE_COS, ROPE_SIN, Operand, layer_program, post_program

TABLE_CODEC = "fp32"
ELEMENTS_AT_A_TIME = 1 << 18


class ReferenceCompiler:
    """Compiles the engines of one model; `engine` methods return nothing and write one file each, all or nothing."""

    def __init__(self, checkpoint: Checkpoint, output: Path, options: CompileOptions) -> None:
        self.checkpoint, self.output, self.options = checkpoint, output, options
        self.config = checkpoint.config
        self.architecture = architecture_of(self.config)
        self._codec = find_codec("bf16_truncated" if options.rounding == "truncate" else options.weight_type)
        self._layer_map = draw_map(self._layer_items(), options.layout_seed, "layer", copies=True)
        self._tables = rope_tables(self.config, self.options.positions())
        self._post_map = draw_map(
            [self._item(spec) for spec in self.architecture.post()], options.layout_seed, "post", copies=False
        )

    def compile(self) -> list[Path]:
        """Every engine and the embedding, in the order of the vendor's compiler; the files written."""
        layers = [self.compile_layer(layer) for layer in range(self.config.num_hidden_layers)]
        return [*layers, self.compile_post(), self.compile_embedding()]

    def compile_layer(self, layer: int) -> Path:
        names = {spec.name: spec.hf_name(layer) for spec in self.architecture.layer}
        groups = [self._group(layer, 1, self.options.kv_cache_len, prefill=False)]
        groups += [
            self._group(layer, self.options.prefill_len, prefix, prefill=True) for prefix in self.options.ladder()
        ]
        path = self.output / layer_file(self.config, self.options.prefill_len, layer)
        return self._write(path, groups, self._layer_map, names, self._tables)

    def compile_post(self) -> Path:
        program = post_program(self.config, self._operands(self._post_map, prefill=False))
        hidden = EngineIo("input", "BF16", (1, 1, self.config.hidden_size))
        logits = EngineIo("output", "BF16", (1, 1, self.config.vocab_size))
        path = self.output / post_file(self.config)
        groups = [Group((hidden,), (logits,), program.encode())]
        return self._write(
            path, groups, self._post_map, {spec.name: spec.name for spec in self.architecture.post()}, {}
        )

    def compile_embedding(self) -> Path:
        path, bf16 = self.output / EMBEDDING_FILE, find_codec("bf16")
        with write_beside(path) as file:
            for rows in _ranges(EMBEDDING.shape(self.config)):
                file.write(self._encode(EMBEDDING.name, bf16, rows).astype("<u2", copy=False).data)
        return path

    def _write(
        self, path: Path, groups: list[Group], memory: MemoryMap, names: dict[str, str], tables: dict[str, Float32]
    ) -> Path:
        """The blob is made in the file: gaps are written first, tensors are placed through a mapping of it."""
        frame = frame_container(groups, memory.size, REFERENCE_VERSION)
        with write_beside(path) as file:
            file.write(frame.head)
            _write_gaps(file, memory.size, memory.fill_seed)
            file.write(frame.tail)
            file.flush()
            blob = np.memmap(file, np.uint8, "r+", len(frame.head), (memory.size,))
            for placed in memory.placed.values():
                stored = _stored(placed)
                for rows in _ranges(stored.shape):
                    if stored.name in tables:
                        raw = find_codec(TABLE_CODEC).encode(tables[stored.name][rows])
                    else:
                        raw = self._encode(names[stored.name], self._codec, rows)
                    write_tensor(blob, stored, Encoded(raw), rows.start)
            blob.flush()
        return path

    def _encode(self, name: str, kind: Codec, rows: slice) -> Raw:
        """Rows of a matrix, or a vector as one row. Raises NotFiniteError for a number that the codec cannot hold."""
        vector = len(self.checkpoint.shape(name)) == 1
        values = self.checkpoint.read(name)[None] if vector else self.checkpoint.read(name, rows)
        try:
            return kind.encode(values)
        except LayoutError:
            raise does_not_fit(self.checkpoint, name, rows.start, values, kind.name) from None

    def _item(self, spec: TensorSpec) -> Item:
        shape = spec.shape(self.config)
        return Item(spec.name, shape if len(shape) == 2 else (1, shape[0]), self._codec.width)

    def _layer_items(self) -> list[Item]:
        table = (self.options.positions(), self.config.head_dim // 2)
        tables = [Item(name, table, 32, constant=True) for name in (ROPE_COS, ROPE_SIN)]
        return [self._item(spec) for spec in self.architecture.layer] + tables

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


def _write_gaps(file: BinaryIO, size: int, seed: int) -> None:
    """What lies between tensors: constant bytes, half of them zero, the same for every checkpoint."""
    state = np.random.Generator(np.random.PCG64(seed))
    noise = state.integers(0, 256, size=1 << 16, dtype=np.uint8)
    noise[: 1 << 15] = 0
    for start in range(0, size, len(noise)):
        file.write(noise[: size - start].data)


def _ranges(shape: tuple[int, ...]) -> Iterator[slice]:
    """Ranges of rows of some 2^18 elements; a power of two rows, so that most fall on the edges of blocks."""
    step = 1 << max(0, (ELEMENTS_AT_A_TIME // shape[1]).bit_length() - 1)
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def _stored(placed: Placed) -> StoredTensor:
    copies = [Copy("decode", (Plane(placed.decode),))]
    if placed.copy:
        copies.append(Copy("prefill", (Plane(placed.copy),)))
    codec = "bf16" if placed.item.width == 16 else "fp32"
    return StoredTensor(placed.item.name, placed.item.shape, codec, tuple(copies))


def compile_model(checkpoint: Checkpoint, output: Path, options: CompileOptions) -> list[Path]:
    """Compile `checkpoint` into `output` (created). Returns the files: layers, post, embedding."""
    output.mkdir(parents=True, exist_ok=True)
    return ReferenceCompiler(checkpoint, output, options).compile()
