"""What the measures work on: SmolLM2 as bf16, s8 and s4, with marker builds and templates, built once below `build/bench`."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipeline import paths
from pipeline.evaluate.twin import write_twin
from pipeline.job import Job
from pipeline.resolve import resolve_job
from tests.helpers.sets import BIN, ROOT

TYPES = ("bf16", "s8", "s4")


@dataclass(frozen=True)
class Workspace:
    """The set of one weight type; Luigi's build directory is shared."""

    folder: Path
    weight_type: str

    @property
    def build(self) -> Path:
        return self.folder / "luigi"

    @property
    def config(self) -> Path:
        return ROOT / "configs" / f"smollm2-135m-{self.weight_type}.toml"

    @cached_property
    def job(self) -> Job:
        return resolve_job(self.config, None, paths.hash_database(self.build))

    @property
    def set(self) -> Path:
        return paths.set_directory(self.build, self.job)

    @property
    def templates(self) -> Path:
        return paths.template_directory(self.build, self.job)

    def build_set(self) -> None:
        """The main job, with as many workers as the machine has cores."""
        command = [BIN / "luigi", "--module", "tasks", "BuildEngineSet", "--config", self.config]
        command += ["--build-dir", self.build, "--workers", min(os.cpu_count() or 1, 4)]
        texts = [str(part) for part in command]
        subprocess.run(texts, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def forget_set(self) -> None:
        """Remove the set and what is patched for it; templates and layouts stay."""
        for path in (self.set, paths.parts_directory(self.build, self.job)):
            shutil.rmtree(path, ignore_errors=True)

    @cached_property
    def twin(self) -> Path:
        """The F32 twin of the source."""
        return write_twin(self.job.source, self.folder / "twin.gguf")


def make_workspaces(folder: Path) -> dict[str, Workspace]:
    """Build each set once, so that templates, layouts and file caches are warm."""
    folder.mkdir(parents=True, exist_ok=True)
    workspaces = {name: Workspace(folder, name) for name in TYPES}
    for workspace in workspaces.values():
        workspace.build_set()
    return workspaces
