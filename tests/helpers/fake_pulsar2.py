"""A stand-in for the vendor's compiler: its flags, its version, its names; the reference compiler inside. Misbehaves on demand.

`write_fake` makes an installation as `PULSAR2_HOME` names it. What runs is `main` of this module.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMMIT = "c62d0b64"


def write_fake(home: Path, version: str = "5.2", **behaviour: Any) -> Path:
    """An installation; `behaviour` as `main` reads it. Its `calls.jsonl` gets every command line."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    (home / "behaviour.json").write_text(json.dumps({"version": version, **behaviour}))
    program = home / "bin" / "pulsar2"
    program.write_text(
        f"#!{sys.executable} -E\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from tests.helpers.fake_pulsar2 import main\nsys.exit(main({str(home)!r}))\n"
    )
    program.chmod(0o755)
    return home


def calls(home: Path) -> list[list[str]]:
    """Command lines but those that ask for the version, in order."""
    path = home / "calls.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [words for words in lines if words != ["version"]]


def main(home: str) -> int:
    """`behaviour`: version, silent (no embedding), mode of misbehaviour."""
    behaviour = json.loads((Path(home) / "behaviour.json").read_text())
    with (Path(home) / "calls.jsonl").open("a") as file:
        file.write(json.dumps(sys.argv[1:]) + "\n")
    if sys.argv[1:] == ["version"]:
        print(behaviour.get("answer", f"version: {behaviour['version']}\ncommit: {COMMIT}"))
        return int(behaviour.get("version_status", 0))
    flags = _parser(behaviour["version"]).parse_args()
    return _misbehave(behaviour.get("mode", ""), home) or _build(flags, behaviour)


def _parser(version: str) -> argparse.ArgumentParser:
    """Strict, as the vendor's: no abbreviations, no flag of the other command."""
    parser = argparse.ArgumentParser(prog="pulsar2", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    names = ["llm_build", *(["llm_build2"] if int(version.split(".")[0]) >= 7 else [])]
    for name in names:
        one = commands.add_parser(name, allow_abbrev=False)
        lengths = ["--kv_cache_len"] if name == "llm_build" else ["--max_context", "--prefill_step_size"]
        for flag in ("--prefill_len", "--parallel", *lengths):
            one.add_argument(flag, type=int, required=True)
        if name == "llm_build":
            one.add_argument("--last_kv_cache_len", type=int, action="append", default=[])
        one.add_argument("--input_path", type=Path, required=True)
        one.add_argument("--output_path", type=Path, required=True)
        one.add_argument("--hidden_state_type", choices=["fp16", "bf16", "fp32"], required=True)
        one.add_argument("--chip", choices=["AX620E", "AX650", "LAMBERT"], required=True)
        one.add_argument("-c", "--check_level", type=int, default=0)
        one.add_argument("-w", "--weight_type", choices=["bf16", "s8", "s4"], required=True)
        one.add_argument("--post_weight_type", choices=["bf16", "s8", "fp8_e5m2"], default="bf16")
    return parser


def _misbehave(mode: str, home: str) -> int:
    print("Config(\n    model_name='tiny',\n)", flush=True)
    if mode == "nothing":
        print("build finished")
        sys.exit(0)
    if mode == "hang":
        child = subprocess.Popen(["sleep", "600"])
        (Path(home) / "pids").write_text(f"{os.getpid()} {child.pid}")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if mode == "garbage":
        sys.stdout.buffer.write(bytes(range(256)) * 64 + b"\x1b[2J\r\n\xff\xfe" + b"x" * 200_000 + b"\n")
        sys.stdout.flush()
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


def _build(flags: argparse.Namespace, behaviour: dict[str, Any]) -> int:
    from pipeline.checkpoint.open import open_checkpoint
    from pipeline.toolchain.kinds import LAYER, POST_ENGINE
    from pipeline.toolchain.options import CompileOptions
    from pipeline.toolchain.reference import compile_model

    second = flags.command == "llm_build2"
    step = flags.prefill_step_size if second else flags.prefill_len
    ladder = tuple(range(0, flags.prefill_len, step)) if second else tuple(flags.last_kv_cache_len)
    longer = 1 if behaviour.get("mode") == "longer" else 0
    options = CompileOptions(
        weight_type=flags.weight_type,
        post_weight_type=flags.post_weight_type,
        kv_cache_len=longer + (flags.max_context - 1 if second else flags.kv_cache_len),
        prefill_len=step,
        last_kv_cache_len=ladder,
        chip=flags.chip,
    )
    checkpoint, mode = open_checkpoint(flags.input_path), behaviour.get("mode", "")
    written = compile_model(checkpoint, flags.output_path, options, (LAYER, POST_ENGINE))
    for path in written:
        print(f"\rbuild {path.name}", flush=True)
        path.rename(
            path.with_name(
                f"{checkpoint.config.architecture}_text{path.name.removeprefix(checkpoint.config.architecture)}"
            )
        )
    engines = sorted(flags.output_path.glob("*_together.axmodel"))
    if mode == "half":
        for path in engines[len(engines) // 2 :]:
            path.unlink()
        print("compiling\nRuntimeError: tiling of layer 1 failed", file=sys.stderr)
        return 1
    if mode == "truncated":
        os.truncate(engines[-1], engines[-1].stat().st_size - 1000)
    if mode == "empty":
        os.truncate(engines[-1], 0)
    if mode == "extra":
        (flags.output_path / "old_l0_together.axmodel").write_bytes(engines[0].read_bytes())
    if behaviour.get("embedding"):
        compile_model(checkpoint, flags.output_path, options, ("embedding",))
    return 0
