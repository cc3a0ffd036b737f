"""A build that is killed at any rename goes on from there, to the same bytes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.helpers.sets import Tiny, build_tiny, built, contents, make_tiny, run

# Counts renames, the moments at which the tree on disk changes; kills itself before the one that is named.
DRIVER = """
import os, pathlib, signal, sys
last, honest, count = int(sys.argv.pop(1)), pathlib.Path.replace, 0

def replace(path, target):
    global count
    count += 1
    if count == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(path, target)

pathlib.Path.replace = replace
from luigi.cmdline import luigi_run
try:
    luigi_run()
finally:
    print("renames", count, flush=True)
"""


def build_until(tiny: Tiny, last: int) -> tuple[int, str]:
    command = ["--module", "tasks", "BuildEngineSet", "--config", tiny.config, "--build-dir", tiny.build]
    result = run([sys.executable, "-c", DRIVER, last, *command])
    return result.returncode, result.stdout


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return build_tiny(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def renames(undisturbed: Tiny) -> int:
    """How many renames a whole build makes."""
    other = Tiny(undisturbed.folder / "counted")
    other.folder.mkdir()
    other.config.write_text(undisturbed.config.read_text().replace("tiny.gguf", str(undisturbed.gguf)))
    code, out = build_until(other, -1)
    assert code == 0
    return int(out.split("renames ")[1])


# The last ones are, from the end: the link, the set's directory, its manifest, the engines that move into it.
@pytest.mark.parametrize("moment", [0.3, 0.7, -3, -1])
def test_killed_build_goes_on_to_the_same_bytes(tmp_path: Path, undisturbed: Tiny, renames: int, moment: float) -> None:
    tiny = make_tiny(tmp_path)
    tiny.config.write_text(undisturbed.config.read_text().replace("tiny.gguf", str(undisturbed.gguf)))
    last = renames + 1 + int(moment) if moment < 0 else int(renames * moment)
    code, _ = build_until(tiny, last)
    assert code == -signal.SIGKILL
    assert not (tiny.set / "manifest.json").exists()
    result = tiny.luigi()
    assert (result.returncode, "Traceback" in result.stderr) == (0, False)
    assert contents(tiny.set) == contents(undisturbed.set)
    assert {path.name for path in (tiny.build / "sets").iterdir()} == {"tiny", tiny.set.resolve().name}


def test_killed_again_and_again(tmp_path: Path, undisturbed: Tiny, renames: int) -> None:
    tiny = make_tiny(tmp_path)
    tiny.config.write_text(undisturbed.config.read_text().replace("tiny.gguf", str(undisturbed.gguf)))
    killed = 0
    for _ in range(renames):
        code, _ = build_until(tiny, renames // 4)
        killed += code == -signal.SIGKILL
        if code == 0:
            break
    assert killed >= 3
    built(tiny)
    assert contents(tiny.set) == contents(undisturbed.set)
