"""Little memory, few threads: a code and one line, no exception behind the C ABI and no process that hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.microcode_bytes import BF16, Code, Group, Slot, float_bits, write_engine
from tests.helpers.simulator import ROOT, library_path

_SETUP = """
import ctypes, resource, sys
from pathlib import Path
import tests.helpers.simulator as simulator
simulator.library_path = lambda: Path(sys.argv[1])
from tests.helpers.simulator import card

def limit(mebibytes):
    size = int(open("/proc/self/statm").read().split()[0]) * 4096 + (mebibytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
"""


def run(body: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A program of its own, because limits stay with a process."""
    command = [sys.executable, "-c", _SETUP + body, library_path(), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def attention(path: Path, history: int, heads: int = 1) -> Path:
    """An engine of less than 1 KB with one attention over `history` columns."""
    code = Code(1, history, kind=2)
    q, k, v, out = code.register(heads), code.register(1), code.register(1), code.register(heads)
    for index, register in enumerate((q, k, v)):
        code.emit("LOAD", register, index)
    code.emit("ATTEND", q, k, v, out, 3, 4, 5, heads, 1, 1, float_bits(1.0))
    code.emit("STORE", out, 0)
    shapes = [("q", (1, heads)), ("k", (1, 1)), ("v", (1, 1)), ("K", (1, history, 1)), ("V", (1, history, 1))]
    inputs = [Slot(name, BF16, shape) for name, shape in [*shapes, ("mask", (1, history + 1))]]
    return write_engine(path, [Group(inputs, [Slot("output", BF16, (1, heads))], code.encode())], b"\0" * 8)


def test_limits_threads_that_cannot_start_are_done_without() -> None:
    body = """
limit(20)
with card(threads=256) as one:
    print(one.report()["threads"])
"""
    done = run(body)
    assert (done.returncode, done.stderr) == (0, "")
    assert 1 <= int(done.stdout) < 60


def test_limits_many_threads_fit_into_little_address_space() -> None:
    done = run('limit(100)\nwith card(threads=64) as one:\n    print(one.report()["threads"])\n')
    assert (done.returncode, done.stdout) == (0, "64\n")


def test_limits_engine_that_memory_cannot_execute_is_not_loaded(tmp_path: Path) -> None:
    body = """
with card(threads=1) as one:
    limit(600)
    model = ctypes.c_uint64()
    print(hex(one.lib("axclrtEngineLoadFromFile", sys.argv[2].encode(), ctypes.byref(model))), model.value)
    print(one.report()["memory"]["used"])
"""
    done = run(body, attention(tmp_path / "wide.axmodel", 1 << 22, heads=48))
    assert (done.returncode, done.stdout) == (0, "0x80300707 0\n0\n")
    assert done.stderr == f"axcl_rt: {tmp_path}/wide.axmodel: the host has no memory for it\n"


def test_limits_one_query_needs_the_memory_of_one_query(tmp_path: Path) -> None:
    body = """
import numpy as np
history = 1 << 22
shapes = {"q": 1, "k": 1, "v": 1, "K": history, "V": history, "mask": history + 1}
with card(threads=2) as one:
    limit(300)
    result = one.load(Path(sys.argv[2])).run(0, {name: np.zeros(size, np.uint16) for name, size in shapes.items()})
    print(result["output"])
"""
    done = run(body, attention(tmp_path / "narrow.axmodel", 1 << 22))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0]\n", "")


def test_limits_stream_whose_thread_cannot_start() -> None:
    body = """
with card(threads=1) as one:
    limit(4)
    stream = ctypes.c_uint64()
    codes = [one.lib("axclrtCreateStream", ctypes.byref(stream)) for _ in range(3)]
    print([hex(code) for code in codes])
"""
    done = run(body)
    assert done.returncode == 0
    assert done.stdout.count("'0x80300306'") + done.stdout.count("'0x0'") == 3
    assert "'0x80300306'" in done.stdout
    assert "axcl_rt: axclrtCreateStream: " in done.stderr


_RACE = """
#include <cstdio>
#include <thread>
#include <vector>
#include "axcl_abi.hpp"
#define DECLARE(result, name, arguments) extern "C" result name arguments;
AXCL_FUNCTIONS(DECLARE)
int main() {
    for (int round = 0; round < 200; ++round) {
        axcl::DeviceList list{};
        axclInit(nullptr);
        axclrtGetDeviceList(&list);
        axclrtSetDevice(129);
        std::vector<axcl::Stream> streams(16);
        for (auto& stream : streams) axclrtCreateStream(&stream);
        std::thread other([&] { for (auto stream : streams) axclrtDestroyStreamForce(stream); });
        axclFinalize();
        other.join();
    }
    std::puts("end");
}
"""


@pytest.mark.parametrize("attempt", range(3))
def test_limits_streams_destroyed_while_the_process_finalizes(tmp_path: Path, attempt: int) -> None:
    source, program = tmp_path / "race.cpp", tmp_path / f"race{attempt}"
    source.write_text(_RACE)
    include = f"-I{ROOT / 'native' / 'include'}"
    directory = library_path().parent
    flags = ["-std=c++20", "-pthread", include, source, library_path(), f"-Wl,-rpath,{directory}", "-o", program]
    subprocess.run(["g++", *flags], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
