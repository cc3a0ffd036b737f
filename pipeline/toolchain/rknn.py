"""rknn-toolkit2 in an environment of its own (`make rknn`): ONNX models to `.rknn` files, many in one process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from layouts.atomic import write_beside
from pipeline.environment import child_environment, variable
from pipeline.errors import MissingFileError, ToolchainError
from pipeline.toolchain import rknn_worker

PYTHON = "ENGINESET_RKNN_PYTHON"
DEFAULT_PYTHON = Path("build/rknn-venv/bin/python")
TARGET = "rk3588"
START_SECONDS, MODEL_SECONDS = 60.0, 120.0

Inputs = Sequence[npt.NDArray[np.float32]]
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FAULT = re.compile(r"^E\s+(?:\w+:\s*)?(?P<text>\S.*)$")


@dataclass(frozen=True)
class RknnModel:
    """An ONNX model and where its `.rknn` goes.

    Parameters
    ----------
    onnx : the serialized model
    output : the file to write; on failure the toolkit's log is kept beside it, as `NAME.log`
    samples : for w8a8, one list of inputs for each calibration sample, in the order of the model's inputs; none: fp16
    """

    onnx: bytes
    output: Path
    samples: Sequence[Inputs] = ()


def compile_rknn(models: Sequence[RknnModel], target: str = TARGET, seconds: float = MODEL_SECONDS) -> list[Path]:
    """Compile models with the toolkit; all are written, or none.

    Models that are to be compared byte by byte belong into one call: where the machine does not permit fixed addresses, the
    files of another process differ in memory that the toolkit never set.

    Parameters
    ----------
    target : the chip
    seconds : time for each model

    Raises
    ------
    MissingFileError : the environment is not there
    ToolchainError : what the toolkit refused, with its own words; a run that took too long
    """
    python = _python()
    with tempfile.TemporaryDirectory(prefix="rknn-") as name:
        directories = [Path(name) / f"{index:05}" for index in range(len(models))]
        for model, directory in zip(models, directories, strict=True):
            _prepare(model, directory)
        request = Path(name) / "request.json"
        quantized = [bool(model.samples) for model in models]
        asked = {"target": target, "directories": [str(path) for path in directories], "datasets": quantized}
        request.write_text(json.dumps(asked))
        lines = _run(python, request, START_SECONDS + seconds * len(models))
        for index, (model, directory) in enumerate(zip(models, directories, strict=True)):
            _check(model, directory, json.loads(lines[index]) if index < len(lines) else None)
        for model, directory in zip(models, directories, strict=True):
            with (directory / "model.rknn").open("rb") as source, write_beside(model.output) as file:
                shutil.copyfileobj(source, file)
    return [model.output for model in models]


def _python() -> Path:
    python = Path(variable(PYTHON) or DEFAULT_PYTHON)
    if not python.is_file():
        raise MissingFileError(f"the RKNN environment is not there: `make rknn`, or {PYTHON}", file=python)
    return python.absolute()


def _prepare(model: RknnModel, directory: Path) -> None:
    directory.mkdir()
    (directory / "model.onnx").write_bytes(model.onnx)
    lines = []
    for index, sample in enumerate(model.samples):
        names = [f"sample-{index}-{place}.npy" for place in range(len(sample))]
        for name, values in zip(names, sample, strict=True):
            np.save(directory / name, values)
        lines.append(" ".join(names))
    (directory / "dataset.txt").write_text("\n".join(lines) + "\n")


def _run(python: Path, request: Path, seconds: float) -> list[str]:
    """The lines of the worker; all of its processes are ended when it takes too long."""
    command = [str(python), "-P", str(Path(rknn_worker.__file__)), str(request)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=request.parent,
        env=child_environment(),
        start_new_session=True,
    ) as child:
        try:
            output, errors = child.communicate(timeout=seconds)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise ToolchainError(f"rknn-toolkit2 took longer than {seconds:.0f} s", file=python) from None
            raise
    if child.returncode:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        raise ToolchainError(f"rknn-toolkit2 did not start: {last}", file=python)
    return output.splitlines()


def _check(model: RknnModel, directory: Path, answer: dict[str, object] | None) -> None:
    """Raises ToolchainError in the toolkit's words; its log is kept."""
    if answer is not None and answer["code"] == 0 and (directory / "model.rknn").is_file():
        return
    log, kept = directory / "log.txt", model.output.with_name(f"{model.output.name}.log")
    text = _COLOUR.sub("", log.read_text(errors="replace")) if log.is_file() else ""
    model.output.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(text)
    reason = _reason(text) or str(answer and (answer["reason"] or f"exit status {answer['code']}"))
    raise ToolchainError(f"rknn-toolkit2: {reason.strip()[:300]} (its log is {kept.name})", file=model.output)


def _reason(log: str) -> str:
    """The toolkit's first error; of a traceback the line that says what was raised."""
    lines = iter(log.splitlines())
    for line in lines:
        if match := _FAULT.match(line):
            if not match["text"].startswith("Traceback"):
                return match["text"]
            return next((last for last in lines if last.strip() and not last.startswith(" ")), match["text"])
    return ""
