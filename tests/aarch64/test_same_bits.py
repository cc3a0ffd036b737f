"""The 64-bit Arm build under emulation gives the bits of this machine: NEON and plain C++, prefill and token by token."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.engineset.names import engine_names
from pipeline.engineset.vendor_config import vendor_files
from pipeline.native import Runner
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model
from tests.helpers.tiny import tiny_config

BUILD = Path(__file__).parents[2] / "build" / "aarch64"
TOKENS = [int(token) for token in np.random.default_rng(3).integers(3, 1000, 150)]


SLIDING = {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 50, "rope_local_theta": 1e4}
SETS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("llama", "bf16", "bf16", {}),
    ("qwen2", "bf16", "bf16", {}),
    ("qwen3", "bf16", "bf16", {}),
    ("qwen2", "s8", "bf16", {}),
    ("llama", "s4", "s8", {}),
    ("gemma3", "s8", "s8", SLIDING),
]


@pytest.fixture(scope="module", params=SETS, ids=lambda one: "-".join(one[:3]))
def engine_set(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    arch, weights, post, fields = request.param
    directory = tmp_path_factory.mktemp("tiny")
    config = tiny_config(arch, head_dim=48, **fields)
    source = NoiseCheckpoint(config, 1)
    options = CompileOptions(
        kv_cache_len=192, prefill_len=64, layout_seed=5, weight_type=weights, post_weight_type=post
    )
    compile_model(source, directory / "set", options)
    for name, content in vendor_files("tiny", config, engine_names(config, options.prefill_len), None).items():
        (directory / "set" / name).write_bytes(content)
    yield directory / "set"


@pytest.mark.parametrize("isa", ["neon", "generic"])
@pytest.mark.parametrize("prefill", [True, False])
def test_arm_scores_to_the_bit(engine_set: Path, isa: str, prefill: bool) -> None:
    with Runner(engine_set) as runner:
        here = [value.hex() for value in runner.score(TOKENS, prefill=prefill).nll]
    there = [float.fromhex(value).hex() for value in _score(engine_set, isa, prefill)]
    assert len(set(here)) > 100
    assert there == here


def _score(engine_set: Path, isa: str, prefill: bool) -> list[str]:
    command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", BUILD / "runner" / "engine-run", engine_set, "--serve"]
    command += ["--lib", BUILD / "simulator" / "libaxcl_rt.so"]
    request = json.dumps({"op": "score", "tokens": TOKENS, "prefill": prefill}) + "\n"
    environment = {**os.environ, "ENGINESET_SIM_ISA": isa}
    done = subprocess.run(
        command, input=request, capture_output=True, text=True, env=environment, timeout=600, check=True
    )
    return list(json.loads(done.stdout.splitlines()[0])["nll"])
