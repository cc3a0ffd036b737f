"""Run by the Python of the RKNN environment, as a script: compiles models, each in a child of one process that has the toolkit.

Argument: a JSON file, `{"target": …, "directories": [...], "datasets": [bool, ...]}`. Every directory holds `model.onnx` and, for
w8a8, `dataset.txt`; `model.rknn` and `log.txt` are written there. One line of JSON a model on the standard output.

The toolkit writes memory that it never set into its files. So every child starts in the same state, at the same addresses, and
new memory is filled with one value: then equal models give equal files.
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIXED_ADDRESSES = 0x0040000  # <sys/personality.h>
MEMORY = "glibc.malloc.tcache_count=0:glibc.malloc.perturb=255"
SETTINGS = {"GLIBC_TUNABLES": MEMORY, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
CHUNK = 1 << 16


def start_again() -> None:
    """Once more from the beginning, with fixed addresses where the machine permits it."""
    if all(os.environ.get(name) == value for name, value in SETTINGS.items()):
        return
    ctypes.CDLL(None).personality(FIXED_ADDRESSES)
    os.execve(sys.executable, sys.orig_argv, {**os.environ, **SETTINGS})


def main() -> None:
    start_again()
    request = json.loads(Path(sys.argv[1]).read_text())
    from rknn.api import RKNN  # type: ignore[import-not-found]  # two seconds

    jobs = zip(request["directories"], request["datasets"], strict=True)
    for directory, dataset in jobs:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os._exit(compile_model(RKNN, directory, request["target"], dataset, write))
        os.close(write)
        reason = read_all(read)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        sys.stdout.write(json.dumps({"code": code, "reason": reason}) + "\n")
        sys.stdout.flush()


def read_all(handle: int) -> str:
    parts = []
    while part := os.read(handle, CHUNK):
        parts.append(part)
    os.close(handle)
    return b"".join(parts).decode(errors="replace")


def compile_model(toolkit: Any, directory: str, target: str, quantize: bool, report: int) -> int:
    """In the child: 0, or 1 with the reason in the pipe."""
    os.chdir(directory)
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        run_toolkit(toolkit, target, quantize)
    except Exception as error:
        os.write(report, str(error).encode()[:CHUNK])
        return 1
    return 0


def run_toolkit(toolkit: Any, target: str, quantize: bool) -> None:
    model: Any = toolkit(verbose=False)
    steps: dict[str, Callable[[], Any]] = {
        "config": lambda: model.config(target_platform=target),
        "load_onnx": lambda: model.load_onnx("model.onnx"),
        "build": lambda: model.build(do_quantization=quantize, dataset="dataset.txt" if quantize else None),
        "export_rknn": lambda: model.export_rknn("model.rknn"),
    }
    for name, step in steps.items():
        if step() not in (0, None):
            raise RuntimeError(f"{name} failed")


if __name__ == "__main__":
    main()
