"""The control in a process of its own, on one thread: BLAS threads that share cores with anything else mostly wait.

Measured beside other work on two cores: 14 CPU seconds for 1,024 positions of SmolLM2-135M, on two BLAS threads up to 32.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from pipeline.errors import CheckpointError, EngineSetError, RunnerError
from pipeline.evaluate.control import Control

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
REFUSED = 3


def control_logits(gguf: Path, windows: Sequence[Sequence[int]]) -> npt.NDArray[Any]:
    """The control's logits of all windows, bf16 `[positions, vocab]`: its values are bf16 already.

    Raises
    ------
    CheckpointError : what the control finds wrong with the GGUF
    RunnerError : the process ended otherwise
    """
    request = json.dumps({"gguf": str(gguf), "windows": [list(window) for window in windows]})
    command = [sys.executable, "-P", "-m", "pipeline.evaluate.control_process"]
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)}
    child = subprocess.run(command, input=request.encode(), capture_output=True, env=environment, check=False)
    if child.returncode == REFUSED:
        raise CheckpointError(child.stderr.decode().strip())
    if child.returncode:
        lines = child.stderr.decode("utf-8", "replace").splitlines()
        raise RunnerError(f"the control ended: {lines[-1] if lines else child.returncode}", file=gguf)
    positions = sum(len(window) for window in windows)
    return np.frombuffer(child.stdout, ml_dtypes.bfloat16).reshape(positions, -1)


def main() -> int:
    request = json.load(sys.stdin)
    try:
        control = Control(request["gguf"])
        for window in request["windows"]:
            sys.stdout.buffer.write(control.logits(window).astype(ml_dtypes.bfloat16).tobytes())
    except EngineSetError as error:
        print(error, file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
