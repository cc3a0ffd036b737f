"""The simulator's `libaxcl_rt.so` through ctypes."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import RunnerError
from pipeline.native import simulator_path

ROOT = Path(__file__).parents[2]
SETTINGS = ("THREADS", "ISA", "CARDS", "FAULTS")
CARD = 129


@cache
def library_path() -> Path:
    """The installed library, or one built from the sources if they are newer."""
    sources = [
        path for part in ("simulator", "include") for path in (ROOT / "native" / part).rglob("*") if path.is_file()
    ]
    newest = max(path.stat().st_mtime for path in sources)
    try:
        installed = simulator_path()
    except RunnerError:
        return _build()
    return installed if installed.stat().st_mtime >= newest else _build()


def _build() -> Path:
    directory = ROOT / "build" / "tests" / "simulator"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        configure = ["cmake", "-S", ROOT / "native", "-B", directory, "-DCMAKE_BUILD_TYPE=Release"]
        subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
        build = ["cmake", "--build", directory, "--target", "axcl_rt", "--parallel", "2"]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    return next(directory.rglob("libaxcl_rt.so"))


class Library:
    """Calls by name. Arguments are ints, bytes and ctypes objects; error codes come back unsigned."""

    U64 = frozenset({"axclrtEngineGetInputSizeByIndex", "axclrtEngineGetOutputSizeByIndex"})
    TEXT = frozenset(
        {
            "axclrtGetFullVersion",
            "axclrtGetSocName",
            "axclrtEngineGetModelCompilerVersion",
            "axclrtEngineGetInputNameByIndex",
            "axclrtEngineGetOutputNameByIndex",
        }
    )

    def __init__(self) -> None:
        self.dll = ctypes.CDLL(str(library_path()))

    def __call__(self, name: str, *arguments: Any) -> Any:
        function = self.dll[name]
        if name in self.TEXT:
            function.restype = ctypes.c_char_p
        else:
            function.restype = ctypes.c_uint64 if name in self.U64 else ctypes.c_uint32
        return function(*[ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments])

    def ok(self, name: str, *arguments: Any) -> None:
        code = self(name, *arguments)
        if code != 0:
            raise RuntimeError(f"{name}: {code:#x}")

    def handle(self, name: str, *arguments: Any, out: int = -1) -> int:
        """The value that a call stores through a pointer, put among the arguments at `out`."""
        value = ctypes.c_uint64(0)
        full = list(arguments)
        full.insert(len(full) if out < 0 else out, ctypes.byref(value))
        self.ok(name, *full)
        return value.value


class DeviceList(ctypes.Structure):
    _fields_ = (("num", ctypes.c_uint32), ("devices", ctypes.c_int32 * 256))


@contextmanager
def environment(settings: Mapping[str, object]) -> Iterator[None]:
    """ENGINESET_SIM_* for the duration; those not named are unset."""
    names = {f"ENGINESET_SIM_{name}": settings.get(name.lower()) for name in SETTINGS}
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ.update({name: str(value) for name, value in names.items() if value is not None})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class Card:
    """One bound device: memory, engines, execution."""

    def __init__(self, library: Library) -> None:
        self.lib = library

    def put(self, data: bytes) -> int:
        address = self.lib.handle("axclrtMalloc", len(data), 0, out=0)
        self.lib.ok("axclrtMemcpy", address, data, len(data), 1)
        return address

    def get(self, address: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        self.lib.ok("axclrtMemcpy", buffer, address, size, 2)
        return buffer.raw

    def load(self, path: Path) -> Loaded:
        return Loaded(self, self.lib.handle("axclrtEngineLoadFromFile", str(path).encode()))

    def report(self) -> dict[str, Any]:
        needed = ctypes.c_int32(self.lib("axclsimReport", None, 0)).value
        buffer = ctypes.create_string_buffer(-needed + 64)
        self.lib("axclsimReport", buffer, len(buffer))
        return dict(json.loads(buffer.value))


class Loaded:
    """An engine with its IO information."""

    def __init__(self, card: Card, model: int) -> None:
        self.card, self.lib, self.model = card, card.lib, model
        self.context = self.lib.handle("axclrtEngineCreateContext", model)
        self.info = self.lib.handle("axclrtEngineGetIOInfo", model)
        self.inputs = self._names("Input")
        self.outputs = self._names("Output")

    def _names(self, side: str) -> list[str]:
        count = self.lib(f"axclrtEngineGetNum{side}s", self.info)
        return [self.lib(f"axclrtEngineGet{side}NameByIndex", self.info, i).decode() for i in range(count)]

    def size(self, side: str, group: int, index: int) -> int:
        return int(self.lib(f"axclrtEngineGet{side}SizeByIndex", self.info, group, index))

    def io(self) -> int:
        return self.lib.handle("axclrtEngineCreateIO", self.info)

    def bind(self, io: int, group: int, inputs: Mapping[str, bytes]) -> dict[str, int]:
        """Binds every slot to a fresh buffer; device addresses by name."""
        addresses = {}
        for index, name in enumerate(self.inputs):
            addresses[name] = self.card.put(inputs[name])
            self.lib.ok("axclrtEngineSetInputBufferByIndex", io, index, addresses[name], len(inputs[name]))
        for index, name in enumerate(self.outputs):
            size = self.size("Output", group, index)
            addresses[name] = self.lib.handle("axclrtMalloc", size, 0, out=0)
            self.lib.ok("axclrtEngineSetOutputBufferByIndex", io, index, addresses[name], size)
        return addresses

    def run(self, group: int, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[np.uint16]]:
        """Executes on fresh buffers, which are freed; bf16 bits of every output."""
        io = self.io()
        addresses = self.bind(io, group, {name: array.tobytes() for name, array in inputs.items()})
        self.lib.ok("axclrtEngineExecute", self.model, self.context, group, io)
        results = {}
        for index, name in enumerate(self.outputs):
            raw = self.card.get(addresses[name], self.size("Output", group, index))
            results[name] = np.frombuffer(raw, np.uint16)
        for address in addresses.values():
            self.lib.ok("axclrtFree", address)
        self.lib.ok("axclrtEngineDestroyIO", io)
        return results


class Call:
    """One call of a group with everything bound as it should be."""

    def __init__(self, loaded: Loaded, group: int, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
        self.card, self.loaded, self.group, self.inputs = loaded.card, loaded, group, inputs
        self._before = self.card.report()["breaches"]
        self.io = loaded.io()
        self.at = loaded.bind(self.io, group, {name: array.tobytes() for name, array in inputs.items()})

    def rebind(self, side: str, name: str, address: int, size: int) -> None:
        self.card.lib.ok(f"axclrtEngineSet{side}BufferByName", self.io, name.encode(), address, size)

    def execute(self, group: int | None = None) -> int:
        chosen = self.group if group is None else group
        return int(self.card.lib("axclrtEngineExecute", self.loaded.model, self.loaded.context, chosen, self.io))

    def output(self) -> npt.NDArray[np.uint16]:
        size = self.loaded.size("Output", self.group, self.loaded.outputs.index("output"))
        return np.frombuffer(self.card.get(self.at["output"], size), np.uint16)

    def breaches(self) -> dict[str, int]:
        """Those counted since this call was made, by name."""
        now = self.card.report()["breaches"]
        return {name: now[name] - self._before[name] for name in now if now[name] != self._before[name]}


@contextmanager
def card(**settings: object) -> Iterator[Card]:
    """A card that is initialised, listed, bound and ready to load; `settings` are ENGINESET_SIM_* in lower case."""
    library = Library()
    with environment(settings):
        library.ok("axclInit", None)
    try:
        library.ok("axclrtGetDeviceList", ctypes.byref(DeviceList()))
        library.ok("axclrtSetDevice", CARD)
        library.ok("axclrtEngineInit", 0)
        yield Card(library)
    finally:
        library("axclFinalize")


def instruction_sets() -> list[str]:
    """Those that this CPU can run, the simulator's own answer."""
    library, names = Library(), []
    for name in ("avx512", "avx2", "neon", "generic"):
        with environment({"isa": name}):
            if library("axclInit", None) == 0:
                names.append(name)
            library("axclFinalize")
    return names
