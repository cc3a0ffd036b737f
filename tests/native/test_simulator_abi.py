"""What a host without a card answers, call by call, and the rules of devices, contexts, memory and streams with one."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.simulator import CARD, ROOT, Card, DeviceList, Library, card, environment, library_path

UNBOUND = 0x80300284
OUT = ctypes.byref(ctypes.c_uint64())
TEXT = b"/no/such/engine.axmodel"
HOST = ctypes.create_string_buffer(16)

NO_CARD: list[tuple[str, tuple[Any, ...], int]] = [
    ("axclFinalize", (), 0),
    ("axclInit", (None,), 0x8030010B),
    ("axclInit", (b"/no/such.json",), 0x8030010B),
    ("axclFinalize", (), 0),
    ("axclFinalize", (), 0),
    ("axclSetLogLevel", (2**32 - 1,), 0),
    ("axclSetLogLevel", (9,), 0),
    ("axclrtGetDeviceCount", (OUT,), 0),
    ("axclrtGetDevice", (OUT,), 0x80300185),
    *[
        (name, (device,), 0x80300184)
        for name in ("axclrtSetDevice", "axclrtResetDevice")
        for device in (2**32 - 1, 0, CARD, 256)
    ],
    ("axclrtCreateContext", (OUT, CARD), 0x80300184),
    ("axclrtGetDeviceProperties", (CARD, ctypes.create_string_buffer(240)), 0x80300180),
    ("axclrtGetDeviceProperties", (CARD, None), 0x80300102),
    ("axclrtSynchronizeDevice", (), 0),
    ("axclrtGetCurrentContext", (OUT,), UNBOUND),
    ("axclrtCreateStream", (OUT,), UNBOUND),
    ("axclrtCreateEvent", (OUT,), 0x80300185),
    ("axclrtMalloc", (OUT, 16, 0), UNBOUND),
    ("axclrtMallocCached", (OUT, 16, 0), UNBOUND),
    ("axclrtFree", (1,), UNBOUND),
    ("axclrtMemFlush", (1, 1), UNBOUND),
    ("axclrtMemset", (1, 0, 1), UNBOUND),
    *[("axclrtMemcpy", (HOST, HOST, 0, kind), UNBOUND) for kind in (1, 2, 3, 4, 5, 77)],
    ("axclrtMemcmp", (1, 1, 1), UNBOUND),
    ("axclrtEngineInit", (0,), UNBOUND),
    ("axclrtEngineFinalize", (), UNBOUND),
    ("axclrtEngineGetVNpuKind", (OUT,), UNBOUND),
    ("axclrtEngineLoadFromMem", (1, 1, OUT), UNBOUND),
    ("axclrtEngineUnload", (1,), UNBOUND),
    ("axclrtEngineGetIOInfo", (1, OUT), UNBOUND),
    ("axclrtEngineCreateContext", (1, OUT), UNBOUND),
    ("axclrtEngineExecute", (1, 1, 0, 1), UNBOUND),
    ("axclrtEngineExecuteAsync", (1, 1, 0, 1, 1), UNBOUND),
    *[(name, (None,), 0x80300102) for name in ("axclrtGetDevice", "axclrtGetDeviceCount", "axclrtGetDeviceList")],
    *[
        (name, (None,), 0x80300202)
        for name in ("axclrtGetCurrentContext", "axclrtSetCurrentContext", "axclrtDestroyContext")
    ],
    *[(name, (None,), 0x80300302) for name in ("axclrtCreateStream", "axclrtDestroyStream", "axclrtSynchronizeStream")],
    *[(name, (None,), 0x80300302) for name in ("axclrtDestroyStreamForce", "axclrtCreateEvent", "axclrtDestroyEvent")],
    ("axclrtMalloc", (None, 16, 0), 0x80300502),
    ("axclrtMallocHost", (None, 16), 0x80300502),
    ("axclrtFree", (None,), 0x80300502),
    ("axclrtMemcpy", (None, HOST, 1, 1), 0x80300502),
    ("axclrtFreeHost", (None,), 0),
    ("axclrtMemcpyAsync", (HOST, HOST, 1, 0, 1), 4),
    ("axclrtGetVersion", (None, None, None), 2),
    ("axclrtEngineLoadFromFile", (None, OUT), 0x80300702),
    ("axclrtEngineLoadFromFile", (TEXT, OUT), 0x80300703),
    ("axclrtEngineLoadFromFile", (b"", OUT), 0x80300703),
    ("axclrtEngineLoadFromFile", (str(ROOT).encode(), OUT), 0x80300703),
    ("axclrtEngineLoadFromFile", (__file__.encode(), OUT), 0x8030050C),
    ("axclrtEngineLoadFromMem", (None, 5, OUT), 0x80300703),
    ("axclrtEngineLoadFromMem", (1, 0, OUT), 0x80300703),
    ("axclrtEngineUnload", (0,), 0x80300703),
    ("axclrtEngineGetIOInfo", (0, OUT), 0x80300703),
    ("axclrtEngineCreateContext", (0, OUT), 0x80300703),
    ("axclrtEngineExecute", (0, 1, 0, 1), 0x80300703),
    ("axclrtEngineExecute", (1, 0, 0, 1), 0x80300703),
    ("axclrtEngineExecute", (1, 1, 0, None), 0x80300702),
    ("axclrtEngineSetAffinity", (1, 0), 0x80300703),
    ("axclrtEngineSetContextAffinity", (1, 1, 1), 0x80300704),
    ("axclrtEngineGetContextAffinity", (1, 1, OUT), 0x80300704),
    ("axclrtEngineGetNumInputs", (None,), 0x80300702),
    ("axclrtEngineGetNumOutputs", (None,), 0x80300702),
    ("axclrtEngineGetInputSizeByIndex", (None, 0, 0), 0xFFFFFFFF80300702),
    ("axclrtEngineGetInputNameByIndex", (None, 0), None),
    ("axclrtEngineGetInputIndexByName", (None, b"x"), 0x80300702),
    ("axclrtEngineSetInputBufferByIndex", (None, 0, 1, 1), 0x80300702),
    ("axclrtEngineGetModelCompilerVersion", (7,), None),
    ("axclrtRebootDevice", (0,), 0x80300187),
    ("axclrtGetDefaultContext", (OUT, 0), 0x80300183),
]


@pytest.fixture
def no_card() -> Iterator[Library]:
    library = Library()
    with environment({"cards": 0}):
        yield library
    library("axclFinalize")


@pytest.fixture
def one() -> Iterator[Card]:
    with card(threads=1) as bound:
        yield bound


@pytest.mark.parametrize(
    ("name", "arguments", "expected"), NO_CARD, ids=[f"{i}-{row[0]}" for i, row in enumerate(NO_CARD)]
)
def test_without_a_card(no_card: Library, name: str, arguments: tuple[Any, ...], expected: int | None) -> None:
    assert no_card(name, *arguments) == expected


def test_without_a_card_lists_stay_empty_and_outputs_untouched(no_card: Library) -> None:
    devices, value = DeviceList(num=5), ctypes.c_int32(77)
    assert no_card("axclrtGetDeviceList", ctypes.byref(devices)) == 0 and devices.num == 0
    no_card("axclrtGetDevice", ctypes.byref(value))
    assert value.value == 77
    handle = ctypes.c_uint64(5)
    no_card("axclrtGetCurrentContext", ctypes.byref(handle))
    assert handle.value == 0


def test_host_memory_needs_neither_init_nor_context(no_card: Library) -> None:
    for size in (0, 64):
        assert no_card("axclrtFreeHost", no_card.handle("axclrtMallocHost", size, out=0)) == 0
    target = ctypes.create_string_buffer(4)
    assert no_card("axclrtMemcpy", target, b"abcd", 4, 0) == 0 and target.raw == b"abcd"


def test_devices_must_be_listed_before_they_are_set() -> None:
    library = Library()
    with environment({}):
        library.ok("axclInit", None)
    try:
        assert library("axclrtGetDeviceCount", OUT) == 0
        assert library("axclrtSetDevice", CARD) == 0x80300184
        devices = DeviceList()
        library.ok("axclrtGetDeviceList", ctypes.byref(devices))
        assert (devices.num, devices.devices[0]) == (1, CARD)
        assert library("axclrtSetDevice", 0) == 0x80300184
        assert library("axclrtSetDevice", CARD) == 0
    finally:
        library("axclFinalize")
    assert library("axclrtSetDevice", CARD) == 0x80300184


def test_set_device_is_counted_and_the_default_context_dies_with_the_last_reset(one: Card) -> None:
    library = one.lib
    library.ok("axclrtSetDevice", CARD)
    default = library.handle("axclrtGetDefaultContext", CARD, out=0)
    assert library("axclrtDestroyContext", default) == 0x80300282
    library.ok("axclrtResetDevice", CARD)
    assert library.handle("axclrtGetCurrentContext") == default
    library.ok("axclrtResetDevice", CARD)
    assert library("axclrtGetCurrentContext", OUT) == UNBOUND
    assert library("axclrtSetCurrentContext", default) == 0x80300203
    assert library("axclrtResetDevice", CARD) == 0x80300183


def test_contexts_belong_to_threads(one: Card) -> None:
    context = one.lib.handle("axclrtCreateContext", CARD, out=0)
    codes: list[int] = []

    def other() -> None:
        codes.append(one.lib("axclrtMalloc", OUT, 16, 0))
        codes.append(one.lib("axclrtSetCurrentContext", context))
        codes.append(one.lib("axclrtMalloc", OUT, 16, 0))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert codes == [UNBOUND, 0, 0]
    one.lib.ok("axclrtDestroyContext", context)
    assert one.lib("axclrtMalloc", OUT, 16, 0) == UNBOUND


def test_memory_is_fresh_nan_and_checked_on_every_use(one: Card) -> None:
    address = one.lib.handle("axclrtMalloc", 100, 0, out=0)
    assert one.get(address, 100) == b"\xff" * 100 and address > 1 << 48
    buffer = ctypes.create_string_buffer(101)
    for name, arguments in [
        ("axclrtMemcpy", (buffer, address, 101, 2)),
        ("axclrtMemcpy", (buffer, address + 50, 51, 2)),
        ("axclrtMemcpy", (address - 1, buffer, 1, 1)),
        ("axclrtMemcpy", (address, buffer, 4, 3)),
        ("axclrtMemset", (address, 0, 101)),
        ("axclrtMemFlush", (address + 100, 1)),
        ("axclrtFree", (address + 1,)),
    ]:
        assert one.lib(name, *arguments) == 0x80300581, name
    assert one.lib("axclrtMemcpy", address, address, 4, 1) == 0x80300503
    one.lib.ok("axclrtMemset", address + 50, 7, 50)
    assert one.get(address, 100) == b"\xff" * 50 + b"\7" * 50
    one.lib.ok("axclrtFree", address)
    assert one.lib("axclrtFree", address) == 0x80300581


def test_memory_runs_out_at_the_cards_size(one: Card) -> None:
    assert one.lib("axclrtMalloc", OUT, 7041 << 20, 0) == 0x80300507
    assert one.lib("axclrtMalloc", OUT, 2**64 - 1, 0) == 0x80300507
    assert one.lib("axclrtMalloc", OUT, 0, 0) == 0x80300503


def test_streams_run_in_order_and_events_join_them(one: Card) -> None:
    lib, size = one.lib, 1 << 20
    first, second = (lib.handle("axclrtCreateStream") for _ in range(2))
    event = lib.handle("axclrtCreateEvent")
    a, b = (lib.handle("axclrtMalloc", size, 0, out=0) for _ in range(2))
    for value in range(20):
        lib.ok("axclrtMemsetAsync", a, value, size, first)
    lib.ok("axclrtRecordEvent", event, first)
    lib.ok("axclrtStreamWaitEvent", second, event)
    lib.ok("axclrtMemcpyAsync", b, a, size, 3, second)
    lib.ok("axclrtSynchronizeStreamWithTimeout", second, 60_000)
    assert one.get(b, size) == bytes([19]) * size
    lib.ok("axclrtMemsetAsync", a, 0, size + 1, first)
    assert lib("axclrtSynchronizeStream", first) == 0x80300581
    assert lib("axclrtSynchronizeStream", first) == 0
    for stream in (first, second):
        lib.ok("axclrtDestroyStream", stream)
        assert lib("axclrtSynchronizeStream", stream) == 0x80300303
    lib.ok("axclrtDestroyEvent", event)


@pytest.mark.parametrize(
    ("name", "value"),
    [("THREADS", "0"), ("THREADS", "two"), ("ISA", "sse9"), ("CARDS", "2"), ("FAULTS", "load=0"), ("FAULTS", "x")],
)
def test_unknown_settings_stop_init_with_one_line(name: str, value: str) -> None:
    script = f"import ctypes; print(hex(ctypes.c_uint32(ctypes.CDLL({str(library_path())!r}).axclInit(None)).value))"
    variables = {f"ENGINESET_SIM_{name}": value, "PATH": ""}
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "0x80300603\n"
    assert done.stderr.count("\n") == 1 and f'ENGINESET_SIM_{name}: "{value}"' in done.stderr


def test_only_the_abi_is_exported() -> None:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", library_path()], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in listing.splitlines()}
    assert all(name.startswith("axcl") for name in names)
    header = (ROOT / "native/include/axcl_abi.hpp").read_text()
    declared = {
        word.rstrip(",") for word in header.replace("(", " ").split() if word.startswith("axcl") and word.endswith(",")
    }
    assert {name for name in declared if not name.startswith("axcl::")} == names
    sections = subprocess.run(["readelf", "-d", library_path()], capture_output=True, text=True, check=True).stdout
    assert "[libaxcl_rt.so]" in sections


def test_a_process_that_forgets_to_finalize_ends(tmp_path: Path) -> None:
    script = (
        "from tests.helpers.simulator import *\n"
        "import ctypes\nlib = Library()\nlib.ok('axclInit', None)\n"
        "lib.ok('axclrtGetDeviceList', ctypes.byref(DeviceList()))\nlib.ok('axclrtSetDevice', CARD)\n"
        "lib.handle('axclrtCreateStream')\n"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=60).returncode == 0


def test_calls_are_counted(one: Card) -> None:
    before = one.report()
    one.lib.ok("axclrtFree", one.put(b"x" * 1000))
    after = one.report()
    for name, step in [("axclrtMalloc", 1), ("axclrtMemcpy", 1), ("axclrtFree", 1), ("axclrtMemset", 0)]:
        assert after["calls"][name] - before["calls"][name] == step, json.dumps(name)
    assert after["copied_bytes"]["host_to_device"] - before["copied_bytes"]["host_to_device"] == 1000
    assert one.lib("axclsimReport", HOST, 16) > 1 << 31
