"""The simulator's thread pool under short jobs, which the C ABI cannot produce."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.helpers.simulator import ROOT


def build(directory: Path, *more: str) -> Path:
    program = directory / "pool_stress"
    simulator = ROOT / "native" / "simulator"
    sources = [ROOT / "native" / "tests" / "simulator" / "pool_stress.cpp", simulator / "pool.cpp"]
    flags = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{simulator}", *more]
    subprocess.run(["g++", *flags, *sources, "-o", program], check=True)
    return program


@pytest.fixture(scope="module")
def stress(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("pool"))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_task_of_every_job_runs_once(stress: Path, threads: int) -> None:
    subprocess.run([stress, str(threads), "200000"], check=True, timeout=120)


def test_no_worker_touches_a_job_that_is_over(tmp_path: Path) -> None:
    done = subprocess.run([build(tmp_path, "-fsanitize=thread", "-g"), "4", "3000"], capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
