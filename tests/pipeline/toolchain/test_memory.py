"""The memory rule: one range of a tensor's rows at a time. Peaks as NumPy reports its own arrays, without mapped files."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest

from pipeline.toolchain.decode import decode_builds
from pipeline.toolchain.markers import marker_checkpoint, plan_markers
from pipeline.toolchain.templates import compile_directory
from tests.helpers.engines import engine_file, small_options
from tests.helpers.tiny import tiny_config

CONFIG = tiny_config("llama", num_hidden_layers=1, vocab_size=20_000)
ELEMENTS = CONFIG.vocab_size * CONFIG.hidden_size
OPTIONS = small_options()


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Bytes per element of the largest tensor: of each build, and of each decode."""
    root, plan, found = tmp_path_factory.mktemp("builds"), plan_markers(CONFIG, "bf16", "bf16"), {}
    for build in range(plan.builds + 1):
        checkpoint, output = marker_checkpoint(plan, build), root / str(build)
        found[output.name] = peak(partial(compile_directory, "reference", checkpoint, OPTIONS, output, None))
    for kind in ("post", "embedding"):
        engines = [
            root / str(build) / engine_file(CONFIG, OPTIONS.prefill_len, kind) for build in range(plan.builds + 1)
        ]
        found[kind] = peak(partial(decode_builds, plan, kind, engines))
    return {name: size / ELEMENTS for name, size in found.items()}


@pytest.mark.parametrize("build", ["0", "1", "2"])
def test_builds_hold_no_whole_tensor(peaks: dict[str, float], build: str) -> None:
    assert peaks[build] < 1.5  # bf16 of the whole would be 2


@pytest.mark.parametrize("kind", ["post", "embedding"])
def test_decode_holds_one_address_an_element(peaks: dict[str, float], kind: str) -> None:
    assert 8 < peaks[kind] < 14
