"""What the process does that asks the card's library: a line of JSON for each call, as soon as it has returned.

properties of a device: byte 0 char[64] version, 64 u64 unique id, 72 u32 x 3 PCI place, 84 i32 temperature,
88 u32 x 4 memory and CMM, total and free, KiB, 104 u32 x 2 load of CPU and NPU, 112 u32[32] (axclrt facts)
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

DEVICES = 256
PROPERTIES_BYTES = 240
_FIELDS = ("temperature", "memory_kib", "free_memory_kib", "cmm_kib", "free_cmm_kib", "cpu_load", "npu_load")


class Devices(ctypes.Structure):
    """`axclrtDeviceList`."""

    _fields_ = (("count", ctypes.c_uint32), ("ids", ctypes.c_int32 * DEVICES))


class Refused(Exception):
    """A call that returned an error code."""


def _answer(call: str, ask: Callable[[], Any]) -> Any:
    """Ask and print what a library's functions return; None after a failure."""
    try:
        value = ask()
    except (OSError, AttributeError, Refused) as error:
        print(json.dumps({"call": call, "error": str(error)}), flush=True)
        return None
    print(
        json.dumps({"call": call, "value": value if isinstance(value, int | str | list | dict) else None}), flush=True
    )
    return value


class Library:
    """Calls of the library by name."""

    def __init__(self, handle: ctypes.CDLL) -> None:
        self._handle = handle

    def call(self, name: str, *arguments: Any) -> int:
        """The code 0; raises Refused for any other."""
        function = self._handle[name]
        function.restype = ctypes.c_uint32
        code = function(*arguments)
        if code:
            raise Refused(f"0x{code:08x}")
        return 0

    def text(self, name: str) -> str:
        function = self._handle[name]
        function.restype = ctypes.c_char_p
        return (function() or b"").decode("utf-8", "replace")

    def version(self) -> str:
        parts = [ctypes.c_int32() for _ in range(3)]
        self.call("axclrtGetVersion", *map(ctypes.byref, parts))
        return ".".join(str(part.value) for part in parts)

    def devices(self) -> list[int]:
        found = Devices()
        self.call("axclrtGetDeviceList", ctypes.byref(found))
        return list(found.ids[: found.count])

    def properties(self, device: int) -> dict[str, Any]:
        """Without the unique id and the PCI place, which say which card it is."""
        self.call("axclrtSetDevice", ctypes.c_int32(device))
        data = ctypes.create_string_buffer(PROPERTIES_BYTES)
        self.call("axclrtGetDeviceProperties", ctypes.c_int32(device), data)
        version = data.raw[:64].partition(b"\0")[0].decode("utf-8", "replace")
        named = dict(zip(_FIELDS, struct.unpack_from("<i6I", data.raw, 84), strict=True))
        self.call("axclrtResetDevice", ctypes.c_int32(device))
        return {"device": device, "version": version, **named}


def main(path: str) -> int:
    handle = _answer("dlopen", lambda: ctypes.CDLL(path))
    if handle is None:
        return 0
    library = Library(handle)
    _answer("axclrtGetFullVersion", partial(library.text, "axclrtGetFullVersion"))
    if _answer("axclInit", partial(library.call, "axclInit", None)) is None:
        return 0
    _answer("axclrtGetVersion", library.version)
    for device in _answer("axclrtGetDeviceList", library.devices) or []:
        _answer("axclrtGetDeviceProperties", partial(library.properties, device))
    _answer("axclrtGetSocName", partial(library.text, "axclrtGetSocName"))
    _answer("axclFinalize", partial(library.call, "axclFinalize"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
