"""Compiled engines of tiny models, and where the compiler really put every element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from layouts.codecs import codec
from layouts.stored import Copy, EngineLayout, StoredTensor
from pipeline.axmodel.walk import walk_engine
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.engineset.names import engine_file
from pipeline.model import ModelConfig
from pipeline.toolchain.kinds import KINDS, LAYER
from pipeline.toolchain.markers import MarkerPlan, marker_checkpoint, plan_markers
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model, engine_layout
from tests.helpers.tiny import tiny_config

ARCHITECTURES = ("llama", "qwen2", "qwen3")
STORAGE = {"bf16": ("bf16", "nearest"), "truncated": ("bf16", "truncate"), "fp32": ("fp32", "nearest")}


class Compiled(Protocol):
    """A model, and how it is compiled."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def options(self) -> CompileOptions: ...

    @property
    def plan(self) -> MarkerPlan: ...


@dataclass(frozen=True)
class Case:
    """One way to compile a tiny model."""

    seed: int

    @property
    def storage(self) -> str:
        return list(STORAGE)[self.seed // 3 % 3]

    def __str__(self) -> str:
        return f"seed{self.seed}-{self.config.architecture}-hd{self.config.head_dim}-{self.storage}"

    @property
    def config(self) -> ModelConfig:
        arch, head_dim = ARCHITECTURES[self.seed % 3], (64, 48)[self.seed % 2]
        return tiny_config(arch, num_hidden_layers=1, head_dim=head_dim, tie_word_embeddings=self.seed % 4 == 3)

    @property
    def plan(self) -> MarkerPlan:
        return plan_markers(self.config, self.options.weight_type, self.options.post_type)

    @property
    def options(self) -> CompileOptions:
        weight_type, rounding = STORAGE[self.storage]
        return small_options(self.seed, weight_type=weight_type, rounding=rounding)


def small_options(seed: int = 0, weight_type: str = "bf16", rounding: str = "nearest") -> CompileOptions:
    """A short cache, so that engines have a decode group and two prefill groups."""
    return CompileOptions(weight_type, kv_cache_len=16, prefill_len=8, layout_seed=seed, rounding=rounding)


def build_markers(directory: Path, case: Compiled) -> list[Path]:
    """Compile the marker builds and the confirming one; their directories."""
    builds = [directory / str(build) for build in range(case.plan.builds + 1)]
    for build, output in enumerate(builds):
        compile_model(marker_checkpoint(case.plan, build), output, case.options, case.plan.kinds(build))
    return builds


def engines_of(builds: list[Path], case: Compiled, kind: str) -> list[Path]:
    """One kind of engine of every build that has it."""
    name = engine_file(case.config, case.options.prefill_len, kind)
    return [build / name for build in builds if (build / name).is_file()]


def true_layouts(checkpoint: Checkpoint, options: CompileOptions) -> dict[str, EngineLayout]:
    """Kind -> layout, from the compiler's own memory map and not from any engine."""
    return {kind: engine_layout(checkpoint.config, options, kind) for kind in KINDS}


def places(layout: EngineLayout) -> dict[tuple[str, str, tuple[tuple[int, int], ...]], npt.NDArray[np.int64]]:
    """(tensor, copy, its rows) -> bit address of every element of the tensor, -1 where the copy has none."""
    return {
        (stored.name, copy.name, copy.rows): copy.planes[0].addresses(0, stored.shape[0])
        for stored in layout.tensors
        for copy in stored.copies
    }


def stored_rows(engine: Path, stored: StoredTensor, copy: Copy) -> Iterator[tuple[slice, npt.NDArray[np.generic]]]:
    """Row ranges of a copy and the stored integers there, gathered byte by byte from the file."""
    blob = walk_engine(engine).weights if engine.suffix == ".axmodel" else None
    data = np.fromfile(engine, np.uint8)[0 if blob is None else blob.offset :]
    width = codec(stored.codec).width // 8
    for start, stop in copy.rows:
        at = copy.planes[0].addresses(start, stop) // 8
        found = sum(data[at + byte].astype(np.uint64) << np.uint64(8 * byte) for byte in range(width))
        yield slice(start, stop), np.asarray(found)


def overwrite_microcode(engine: Path, seed: int) -> None:
    """Random bytes over every microcode initializer; everything else stays."""
    noise = np.random.default_rng(seed)
    with engine.open("r+b") as file:
        for blob in walk_engine(engine).microcode():
            file.seek(blob.offset)
            file.write(noise.bytes(blob.size))


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Replace bytes of a file in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


__all__ = ["KINDS", "LAYER", "Case", "build_markers", "engines_of", "places", "small_options", "true_layouts"]
