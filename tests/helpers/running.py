"""Runs engine sets on the simulator, and spoils their weights where a test wants it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from layouts.sidecar import read_layout
from layouts.stored import Copy, StoredTensor
from pipeline.container.blob import weight_blob
from pipeline.native import Runner
from tests.helpers.sets import Tiny, built, make_tiny, write_config

PREFILL_LEN = 64  # the runner leaves shorter prefill groups alone
FLAGS = {"kv_cache_len": 192, "prefill_len": PREFILL_LEN}


def build_running(folder: Path, arch: str, layout_seed: int = 3, qtype: str = "F32", **sizes: int) -> Tiny:
    """A set whose prefill groups the runner uses."""
    tiny = make_tiny(folder, arch, qtype=qtype, **sizes)
    write_config(tiny.config, arch, layout_seed=layout_seed, **FLAGS)
    built(tiny)
    return tiny


def tokens(count: int, seed: int = 0) -> list[int]:
    """Seeded ids of the tiny vocabulary, none of them special."""
    return [int(token) for token in np.random.default_rng(seed).integers(3, 1000, count)]


def nll_bits(
    directory: Path, ids: Sequence[int], prefill: bool = True, environment: Mapping[str, str] | None = None
) -> bytes:
    """The bits of every negative log-likelihood."""
    with Runner(directory, environment=environment) as runner:
        return runner.score(ids, prefill=prefill).nll.tobytes()


def greedy(directory: Path, prompt: Sequence[int], count: int, prefill: bool = True) -> list[int]:
    with Runner(directory) as runner:
        return list(runner.generate(prompt, max_tokens=count, prefill=prefill, ignore_eos=True))


def logits(directory: Path, ids: Sequence[int], folder: Path, prefill: bool = True) -> npt.NDArray[np.float32]:
    """Logits of every position as the post engine left them, `[len(ids), vocab]`."""
    path = folder / "logits.bin"
    with Runner(directory) as runner:
        runner.score(ids, logits=path, prefill=prefill)
    bits = np.fromfile(path, "<u2").astype(np.uint32) << 16
    return bits.view(np.float32).reshape(len(ids), -1)


def writable_copy(tiny: Tiny, folder: Path) -> Path:
    """A copy of the set that may be spoilt."""
    return Path(shutil.copytree(tiny.set, folder / "spoilt"))


def scramble(directory: Path, engine: Path, names: Sequence[str], copy: str | None = None) -> bytes:
    """Reverse the rows of weights in every copy, or in the one that is named; the engine's bytes before."""
    before = engine.read_bytes()
    layout = read_layout(directory / "layer.layout.toml")
    blob = weight_blob(engine)
    data = np.memmap(engine, np.uint8, "r+", blob.offset, (blob.size,))
    for name in names:
        for held in layout[name].copies:
            if copy in (None, held.name):
                _reverse_rows(data, layout[name], held)
    data.flush()
    return before


def _reverse_rows(data: npt.NDArray[np.uint8], stored: StoredTensor, held: Copy) -> None:
    for start, stop in held.rows:
        at = held.planes[0].addresses(start, stop) // 8
        raw = data[at].astype(np.uint16) | data[at + 1].astype(np.uint16) << np.uint16(8)
        data[at], data[at + 1] = raw[::-1] & 0xFF, raw[::-1] >> 8


__all__ = ["Tiny", "build_running", "greedy", "logits", "nll_bits", "scramble", "tokens", "writable_copy"]
