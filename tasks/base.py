"""What all tasks share: the config, the source and the build directory, from which every path follows."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import luigi
from filelock import FileLock, Timeout

from layouts.sidecar import read_layout
from layouts.stored import EngineLayout
from pipeline import paths
from pipeline.engineset.sources import Adapter
from pipeline.engineset.whole import set_damage
from pipeline.errors import ConfigError, EngineSetError, InternalError
from pipeline.files import make_way
from pipeline.job import Job
from pipeline.resolve import resolve_job
from pipeline.toolchain.kinds import KINDS
from tasks import progress

USAGE = 2
DEFAULT_CONFIG = "configs/smollm2-135m-bf16.toml"


@lru_cache(maxsize=16)
def _job(config: str, gguf: str, lora: str, lora_scale: float, build: str) -> Job:
    source = Path(gguf) if gguf else None
    if not lora and lora_scale != 1.0:
        raise ConfigError("scales an adapter, and none is given with --lora", where="--lora-scale", found=lora_scale)
    adapter = Adapter(Path(lora).absolute(), lora_scale) if lora else None
    return resolve_job(Path(config), source, paths.hash_database(Path(build)), adapter)


class ScaleParameter(luigi.FloatParameter):
    """A number; what is none ends the command as any other wrong usage does."""

    def parse(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            print(f"error: --lora-scale: not a number (found {text})", file=sys.stderr)
            sys.exit(USAGE)


class EngineSetTask(luigi.Task):
    """Base of all tasks. `gguf` overrides the source of the config; a directory in HF form is taken as well."""

    config = luigi.Parameter(default=DEFAULT_CONFIG, description="TOML file of the engine set")
    gguf = luigi.Parameter(default="", description="weights, instead of the config's source")
    lora = luigi.Parameter(default="", description="LoRA adapter (GGUF or PEFT directory) merged into the weights")
    lora_scale = ScaleParameter(default=1.0, description="what the adapter's change is multiplied with")
    build_dir = luigi.Parameter(default="build", description="where everything is written")

    @property
    def job(self) -> Job:
        return _job(self.config, self.gguf, self.lora, self.lora_scale, self.build_dir)

    @property
    def build(self) -> Path:
        return Path(self.build_dir)

    def complete(self) -> bool:
        """As `is_complete`; Luigi swallows what is raised here, so a fault is reported first."""
        try:
            return self.is_complete()
        except (EngineSetError, OSError) as error:
            progress.report_fault(self, error)
            raise

    def is_complete(self) -> bool:
        """Whether the output is there and has not been damaged since; damage is said and made good."""
        if not Path(self.output().path).is_file():
            return False
        damage = self.damage()
        if damage is not None:
            progress.report_damage(damage)
        return damage is None

    def damage(self) -> str | None:
        """Why the output, though it is there, has to be made again, in one line."""
        return None

    def run(self) -> None:
        """`work`, unless another process does it right now or has done it: two builds of one thing never mix."""
        path = paths.lock_path(self.build, Path(self.output().path))
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"{type(self).__name__}: waiting for another build that does the same", file=sys.stderr, flush=True)
            lock.acquire()
        try:
            if not self.is_complete():
                make_way(Path(self.output().path))
                self.work()
        finally:
            lock.release()

    def set_is_whole(self) -> bool:
        """Whether the set that this task works for is there already."""
        return set_damage(paths.set_directory(self.build, self.job), self.job.hashes) is None

    def work(self) -> None:
        """Make the output."""
        raise InternalError(f"{type(self).__name__} does nothing")

    def shared(self) -> dict[str, Any]:
        """Parameters to hand on to a requirement."""
        return {name: getattr(self, name) for name in ("config", "gguf", "lora", "lora_scale", "build_dir")}

    def layouts(self) -> dict[str, EngineLayout]:
        """Kind of engine -> its decoded layout."""
        return {kind: read_layout(paths.layout_path(self.build, self.job, kind)) for kind in KINDS}

    @staticmethod
    def target(path: Path) -> luigi.LocalTarget:
        return luigi.LocalTarget(str(path))


progress.register(EngineSetTask)
