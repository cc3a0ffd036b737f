"""What the measures work on: the default model, its marker builds and templates, built once below `build/bench`."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipeline.evaluate.twin import write_twin
from pipeline.job import Job, resolve_job
from tasks import paths
from tasks.base import DEFAULT_CONFIG
from tests.helpers.sets import BIN, ROOT


@dataclass(frozen=True)
class Workspace:
    """Luigi's build directory of the bench."""

    folder: Path

    @property
    def build(self) -> Path:
        return self.folder / "luigi"

    @cached_property
    def job(self) -> Job:
        return resolve_job(ROOT / DEFAULT_CONFIG, None, paths.hash_database(self.build))

    @property
    def set(self) -> Path:
        return paths.set_directory(self.build, self.job)

    @property
    def templates(self) -> Path:
        return paths.template_directory(self.build, self.job)

    def build_set(self) -> None:
        """The main job, with as many workers as the machine has cores."""
        command = [BIN / "luigi", "--module", "tasks", "BuildEngineSet", "--build-dir", self.build]
        texts = [str(part) for part in [*command, "--workers", min(os.cpu_count() or 1, 4)]]
        subprocess.run(texts, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def forget_set(self) -> None:
        """Remove the set and what is patched for it; templates and layouts stay."""
        for name in ("sets", "parts"):
            shutil.rmtree(self.build / name, ignore_errors=True)

    @cached_property
    def twin(self) -> Path:
        """The F32 twin of the source."""
        return write_twin(self.job.source, self.folder / "twin.gguf")


def make_workspace(folder: Path) -> Workspace:
    """Build the set once, so that templates, layouts and file caches are warm."""
    folder.mkdir(parents=True, exist_ok=True)
    workspace = Workspace(folder)
    workspace.build_set()
    return workspace
