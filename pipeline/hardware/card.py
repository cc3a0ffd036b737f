"""The card's runtime library, asked in a process of its own: it may hang, end the process, or be none."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipeline.environment import variable
from pipeline.errors import RunnerError
from pipeline.hardware.sections import Absent, Findings
from pipeline.toolchain.streamed import run_streamed

LIBRARY = "libaxcl_rt.so"
SECONDS = 60.0


def describe_card(found: Findings, library: str, seconds: float = SECONDS) -> None:
    """Load the library, ask its version, initialize, list devices, and ask the properties of each.

    Parameters
    ----------
    library : a path, or a name that the loader finds

    Raises
    ------
    Absent : no such library
    RunnerError : a call that fails, ends the process or does not end; what was answered before stays in `found`
    """
    package_root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [package_root, variable("PYTHONPATH")]))
    words = [sys.executable, "-u", "-P", "-m", "pipeline.hardware.card_process", library]
    with tempfile.TemporaryDirectory(prefix="engineset-") as scratch:
        log = Path(scratch) / "answers"
        ended = run_streamed(words, log, seconds, lambda _: None, {"PYTHONPATH": paths})
        answers, said = _answers(log.read_bytes())
    found.data |= {"calls": answers, "said": said}
    last = answers[-1] if answers else {"call": "start", "error": "no answer"}
    if str(last.get("error")).startswith(f"{library}: cannot open shared object"):  # not: what it needs itself
        raise Absent(str(last["error"]))
    if not ended.in_time:
        raise RunnerError("a call did not end", where=f"after {last['call']}", expected=f"{seconds:g} s")
    for answer in answers:
        if "error" in answer:
            raise RunnerError(str(answer["error"]), where=answer["call"])
    if ended.status:
        raise RunnerError("the library ended the process", where=f"after {last['call']}", found=ended)


def _answers(output: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """Our own lines, and what the library printed besides."""
    answers, said = [], []
    for line in output.decode("utf-8", "replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict) and "call" in value:
            answers.append(value)
        elif line.strip():
            said.append(line)
    return answers, said[-100:]
