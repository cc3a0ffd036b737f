"""Engine sets of tiny models, built by the real `luigi` command in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from tests.helpers.tiny import tiny_config, write_tiny_gguf

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Tiny:
    """A folder with a GGUF, a config that names it, and a build directory that is not there yet."""

    folder: Path

    @property
    def gguf(self) -> Path:
        return self.folder / "tiny.gguf"

    @property
    def config(self) -> Path:
        return self.folder / "tiny.toml"

    @property
    def build(self) -> Path:
        return self.folder / "build"

    @property
    def set(self) -> Path:
        """Where the link to the set is."""
        return self.build / "sets" / "tiny"

    def luigi(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """`luigi --module tasks BuildEngineSet` on the folder's config."""
        command = ["--config", self.config, "--build-dir", self.build, *arguments]
        return run([BIN / "luigi", "--module", "tasks", "BuildEngineSet", *command], **options)


def run(command: list[object], **options: Any) -> subprocess.CompletedProcess[str]:
    """A command in the repository's root; its output as text."""
    texts = [str(part) for part in command]
    settings = {"timeout": 120, "capture_output": True, **options}
    return subprocess.run(texts, cwd=ROOT, text=True, check=False, **settings)


def engineset(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The console command `engineset`."""
    code = "import sys; from pipeline.cli import main; sys.argv[0] = 'engineset'; main()"
    return run([sys.executable, "-c", code, *arguments], env=os.environ | {"PYTHONPATH": paths()}, **options)


def paths() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


def make_tiny(
    folder: Path, arch: str = "qwen2", seed: int = 1, qtype: str = "F32", layout_seed: int = 3, **sizes: Any
) -> Tiny:
    """Write GGUF and config; a cache of 32 rows, prefill calls of 8 tokens unless `templates` says otherwise."""
    tiny = Tiny(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tiny_gguf(tiny.gguf, tiny_config(arch, **sizes), seed, qtype)
    write_config(tiny.config, arch, layout_seed=layout_seed)
    return tiny


def write_config(
    path: Path, arch: str, source: str = "tiny.gguf", top: dict[str, Any] | None = None, **templates: Any
) -> None:
    """A config named `tiny`; `top` are keys beside its name."""
    flags = {} if "dir" in templates else {"kv_cache_len": 32, "prefill_len": 8}
    config = {"name": "tiny", "architecture": arch, **(top or {}), "source": {"path": source}}
    path.write_text(tomli_w.dumps(config | {"templates": flags | templates}))


def build_tiny(folder: Path, arch: str = "qwen2", **options: Any) -> Tiny:
    """Make it and build its set."""
    tiny = make_tiny(folder, arch, **options)
    built(tiny)
    return tiny


def built(tiny: Tiny, *arguments: object) -> Path:
    """Build the set; its directory."""
    result = tiny.luigi(*arguments)
    if result.returncode:
        raise AssertionError(f"luigi failed with {result.returncode}:\n{result.stderr}")
    return tiny.set.resolve()


def contents(directory: Path) -> dict[str, bytes]:
    """File name -> bytes."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def left_behind(build: Path) -> list[str]:
    """Temporary files, sets and parts of sets below a build directory."""
    hidden = [str(path) for path in build.rglob(".*")]
    return hidden + [str(path) for place in ("sets/*", "parts/*") for path in build.glob(place)]


def check_refusal(tiny: Tiny, result: subprocess.CompletedProcess[str], reasons: list[str]) -> None:
    """A build failed with one line for each reason, a regular expression, and left nothing half-written."""
    assert result.returncode != 0
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == len(reasons), result.stderr
    for line, reason in zip(errors, reasons, strict=True):
        assert re.search(reason, line), line
    assert "Traceback" not in result.stderr + result.stdout
    assert "engine set:" not in result.stdout
    assert left_behind(tiny.build) == []


__all__ = ["Tiny", "build_tiny", "built", "check_refusal", "contents", "engineset", "left_behind", "make_tiny"]
