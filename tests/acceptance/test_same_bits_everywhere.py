"""Negative log-likelihoods are the same bits on every map, thread count and instruction set."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.helpers.running import Tiny, build_running, nll_bits, tokens
from tests.helpers.sets import contents

IDS = tokens(140, seed=9)
ARCH = "qwen3"


def instruction_sets() -> list[str]:
    """Those that this machine has."""
    if platform.machine() in ("aarch64", "arm64"):
        return ["generic", "neon"]
    flags = set(Path("/proc/cpuinfo").read_text().split())
    found = ["generic"]
    if {"avx2", "fma"} <= flags:
        found.append("avx2")
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        found.append("avx512")
    return found


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return build_running(tmp_path_factory.mktemp("bits"), ARCH, layout_seed=0)


@pytest.fixture(scope="module")
def bits(tiny: Tiny) -> bytes:
    found = nll_bits(tiny.set, IDS)
    assert len(found) == 8 * (len(IDS) - 1)
    return found


@pytest.mark.parametrize("seed", [1, 6, 13])
def test_layout_seed_changes_the_files_and_not_a_bit_of_the_results(
    tiny: Tiny, bits: bytes, tmp_path: Path, seed: int
) -> None:
    other = build_running(tmp_path, ARCH, layout_seed=seed)
    name = "qwen3_p64_l0_together.axmodel"
    assert contents(other.set)[name] != contents(tiny.set)[name]
    assert nll_bits(other.set, IDS) == bits


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_and_instruction_sets(tiny: Tiny, bits: bytes, threads: int, isa: str) -> None:
    environment = {"ENGINESET_SIM_THREADS": str(threads), "ENGINESET_SIM_ISA": isa}
    assert nll_bits(tiny.set, IDS, environment=environment) == bits


def test_a_second_request_has_the_same_bits(tiny: Tiny, bits: bytes) -> None:
    assert nll_bits(tiny.set, IDS) == bits


def test_other_tokens_have_other_bits(tiny: Tiny, bits: bytes) -> None:
    assert nll_bits(tiny.set, [*IDS[:-1], IDS[-1] ^ 1])[-8:] != bits[-8:]
    assert nll_bits(tiny.set, [*IDS[:-1], IDS[-1] ^ 1])[:-8] == bits[:-8]
