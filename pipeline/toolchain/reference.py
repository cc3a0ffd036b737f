"""The reference compiler: the stand-in for the vendor's closed one.

Takes a checkpoint and the vendor's own flags, writes the vendor's file names and real `.axmodel` containers with weights at
places that follow from the configuration and `layout_seed` alone. The same arguments give the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from layouts.atomic import write_beside
from layouts.encoding import Encoded, encode_rows
from layouts.errors import LayoutError
from layouts.stored import EngineLayout, StoredTensor
from layouts.strided import Bytes
from layouts.view import write_tensor
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.engineset.names import engine_file
from pipeline.model import ModelConfig
from pipeline.refit.assigned import AssignedWeights
from pipeline.refit.choose import Given
from pipeline.refit.plan import EnginePlan, plan_engine, read_assigned
from pipeline.refit.refit import does_not_fit
from pipeline.toolchain.container import WEIGHTS, Frame, frame_container
from pipeline.toolchain.corrections import correct
from pipeline.toolchain.embedding import embedding_layout
from pipeline.toolchain.engine_map import engine_constants, engine_map
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, KINDS, LAYER, POST_ENGINE
from pipeline.toolchain.options import REFERENCE_VERSION, CompileOptions
from pipeline.toolchain.placed import MemoryMap
from pipeline.toolchain.shape_groups import engine_groups

ELEMENTS_AT_A_TIME = 1 << 18


class ReferenceCompiler:
    """Compiles the engines of one model; `compile_*` methods write one file each, all or nothing."""

    def __init__(self, checkpoint: Checkpoint, output: Path, options: CompileOptions) -> None:
        self.checkpoint, self.output, self.options = checkpoint, output, options
        self.config = checkpoint.config
        self._maps = {kind: engine_map(self.config, options, kind) for kind in (LAYER, POST_ENGINE)}

    def compile(self, kinds: Collection[str] = KINDS) -> list[Path]:
        """Every layer, the post engine and the embedding, of them `kinds`, in the order of the vendor's compiler; the files."""
        written = [self.compile_layer(layer) for layer in range(self.config.num_hidden_layers) if LAYER in kinds]
        written += [self.compile_post()] if POST_ENGINE in kinds else []
        return written + ([self.compile_embedding()] if EMBEDDING_ENGINE in kinds else [])

    def compile_layer(self, layer: int) -> Path:
        return self._compile(LAYER, layer)

    def compile_post(self) -> Path:
        return self._compile(POST_ENGINE, 0)

    def compile_embedding(self) -> Path:
        (stored,), plan = embedding_layout(self.config).tensors, self._plan(EMBEDDING_ENGINE, 0)
        path = self._path(EMBEDDING_ENGINE, 0)
        with write_beside(path) as file:
            for rows in _ranges(stored.shape):
                file.write(self._encode(stored, plan, rows).raw.astype("<u2", copy=False).data)
        return path

    def _compile(self, kind: str, layer: int) -> Path:
        """The blob is made in the file: gaps are written first, tensors are placed through a mapping of it."""
        path, memory = self._path(kind, layer), self._maps[kind]
        frame = _frame(self.config, self.options, kind, memory, layer)
        with write_beside(path) as file:
            file.write(frame.head)
            _write_gaps(file, memory.size, memory.fill_seed)
            file.write(frame.tail)
            file.flush()
            blob = np.memmap(file, np.uint8, "r+", len(frame.head), (memory.size,))
            for start, stop in memory.zeroed:
                blob[start:stop] = 0
            self._fill(blob, kind, layer)
            blob.flush()
        return path

    def _fill(self, blob: Bytes, kind: str, layer: int) -> None:
        constants = engine_constants(self.config, self.options, kind, layer)
        plan = self._plan(kind, layer)
        for name, placed in self._maps[kind].placed.items():
            stored = placed.stored()
            for rows in _ranges(stored.shape):
                if name in constants:
                    encoded = encode_rows(stored, constants[name][rows])
                else:
                    encoded = self._encode(stored, plan, rows)
                    encoded = correct(stored, encoded, layer, rows.start, self.options.corrections)
                write_tensor(blob, stored, encoded, rows.start)

    def _encode(self, stored: StoredTensor, plan: EnginePlan, rows: slice) -> Encoded:
        """Raises NotFiniteError for numbers that the codec or a scale entry cannot hold."""
        assignment = next(item for item in plan.assignments if item.tensor == stored.name)
        values: Float32 = read_assigned(self.checkpoint, assignment, rows)
        try:
            return encode_rows(stored, values)
        except LayoutError as error:
            weights = AssignedWeights(self.checkpoint, plan, engine_layout(self.config, self.options, plan.kind))
            raise does_not_fit(weights, stored, Given(rows.start, values), error) from None

    def _plan(self, kind: str, layer: int) -> EnginePlan:
        return plan_engine(self.config, kind, layer, self.options.folds(kind))

    def _path(self, kind: str, layer: int) -> Path:
        return self.output / engine_file(self.config, self.options.prefill_len, kind, layer)


def _frame(config: ModelConfig, options: CompileOptions, kind: str, memory: MemoryMap, layer: int) -> Frame:
    return frame_container(engine_groups(config, options, kind, memory, layer), memory.size, REFERENCE_VERSION)


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


def compile_model(
    checkpoint: Checkpoint, output: Path, options: CompileOptions, kinds: Collection[str] = KINDS
) -> list[Path]:
    """Compile `kinds` of engine of `checkpoint` into `output` (created). Returns the files: layers, post, embedding."""
    output.mkdir(parents=True, exist_ok=True)
    return ReferenceCompiler(checkpoint, output, options).compile(kinds)


def engine_layout(config: ModelConfig, options: CompileOptions, kind: str) -> EngineLayout:
    """The compiler's own truth about an engine, from its memory map and not from any file."""
    if kind == EMBEDDING_ENGINE:
        return embedding_layout(config)
    memory = engine_map(config, options, kind)
    tensors = tuple(placed.stored() for placed in memory.placed.values() if not placed.item.constant)
    offset = len(_frame(config, options, kind, memory, 0).head)
    return EngineLayout(kind, WEIGHTS, memory.size, tensors, offset)
