"""Whole sets from cached templates, against compiling them and against copying their bytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pipeline.toolchain.reference import compile_model
from tests.bench.measure import Row, median_seconds
from tests.bench.workspace import Workspace

MEASURED = ("bf16", "s8")


def measure(workspaces: dict[str, Workspace]) -> Iterator[Row]:
    seconds: dict[str, float] = {}
    for name in MEASURED:
        ours, others = _build(workspaces[name])
        others |= {f"the {other} set": found for other, found in seconds.items()}
        seconds[name] = ours
        yield Row(f"build the {name} set from cached templates", ours, "s", others)


def _build(workspace: Workspace) -> tuple[float, dict[str, float]]:
    scratch = workspace.folder / "scratch"
    ours = median_seconds(workspace.build_set, 3, workspace.forget_set)

    def clear() -> None:
        shutil.rmtree(scratch, ignore_errors=True)

    compiled = median_seconds(lambda: compile_model(workspace.job.checkpoint, scratch, workspace.job.options), 3, clear)
    copied = median_seconds(lambda: copy_synced(workspace.set, scratch), 3, clear)
    clear()
    return ours, {"reference compiler": compiled, "copy of the same bytes": copied}


def copy_synced(source: Path, target: Path) -> None:
    """Copy every file of a directory through to the disk."""
    target.mkdir()
    for path in source.iterdir():
        copy_file(path, target / path.name)


def copy_file(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
