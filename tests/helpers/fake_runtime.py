"""The fake libaxcl_rt.so of tests/native/fake_axcl.cpp, and engine sets for it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.native import runner_path

_ROOT = Path(__file__).parents[2]
GROUPS = [[1, 200], [64, 0], [64, 64], [64, 128]]


@cache
def fake_runtime() -> Path:
    """The compiled fake; compiled once for each version of its sources."""
    sources = [_ROOT / "tests/native/fake_axcl.cpp", _ROOT / "native/include/axcl_abi.hpp"]
    key = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    library = _ROOT / "build/tests" / f"fake-{key}" / "libaxcl_rt.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            compile_shared(sources[0], Path(scratch) / "new.so")
            (Path(scratch) / "new.so").replace(library)
    return library


def compile_shared(source: Path, library: Path, *more: str) -> None:
    """Compile one C++ file with the headers of the runner and of the ABI."""
    flags = [
        "-std=c++20",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-ffp-contract=off",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
    ]
    includes = [f"-I{_ROOT / 'native' / name}" for name in ("include", "runner")]
    subprocess.run(["g++", *flags, *more, *includes, source, "-o", library], check=True)


def write_fake_set(directory: Path, **changes: Any) -> Path:
    """A set of 3 layers, hidden 8, kv 4, vocabulary 300; `changes` go into every layer or, by name, elsewhere."""
    config_changes = changes.pop("config", {})
    post = {"kind": "post", "hidden": 8, "vocab": 300} | changes.pop("post", {})
    layer = {"kind": "layer", "hidden": 8, "kv": 4, "rows": 200, "groups": GROUPS} | changes
    config = {
        "template_filename_axmodel": "m_l%d_together.axmodel",
        "axmodel_num": 3,
        "filename_post_axmodel": "m_post.axmodel",
        "filename_tokens_embed": "embed.bin",
        "tokens_embed_num": 300,
        "tokens_embed_size": 8,
        "eos_token_id": [7, 9],
    }
    directory.mkdir(parents=True, exist_ok=True)
    for index in range(3):
        (directory / f"m_l{index}_together.axmodel").write_text(json.dumps(layer))
    (directory / "m_post.axmodel").write_text(json.dumps(post))
    rows = np.zeros((300, 8), np.uint16)
    rows[:, 0] = np.arange(300)
    rows.tofile(directory / "embed.bin")
    (directory / "config.json").write_text(json.dumps(config | config_changes))
    return directory


@dataclass
class Ran:
    code: int
    out: list[str]
    err: list[str]
    calls: list[dict[str, Any]] = field(default_factory=list)

    def names(self) -> list[str]:
        return [call["call"] for call in self.calls]

    def of(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        return [c for c in self.calls if c["call"] == name and all(c[k] == v for k, v in fields.items())]

    def layer_calls(self) -> list[dict[str, Any]]:
        return self.of("axclrtEngineExecute", kind="layer")


def write_options(directory: Path, **options: Any) -> tuple[dict[str, str], Path]:
    """Environment that configures the fake, and where its log will be."""
    log, file = directory / "calls.jsonl", directory / "fake.json"
    file.write_text(json.dumps({"log": str(log), **options}))
    return {"FAKE_AXCL": str(file)}, log


def read_calls(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def run_fake(engine_set: Path, scratch: Path, *arguments: str, stdin: str = "", **options: Any) -> Ran:
    environment, log = write_options(scratch, **options)
    done = subprocess.run(
        [runner_path(), engine_set, "--lib", fake_runtime(), "--connect-timeout", "1", "--load-pause", "1", *arguments],
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), read_calls(log))
