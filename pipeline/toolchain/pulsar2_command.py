"""Words of the vendor's command line, as published for its versions (axmodel facts, section 7; its own `--help`).

`llm_build` takes the lengths themselves. `llm_build2` takes `--max_context`, one more than the rows of the decode cache,
`--prefill_step_size`, the tokens of a call, and `--prefill_len`, all tokens that the ladder can hold.
"""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.environment import variable
from pipeline.errors import MissingFileError, ToolchainError
from pipeline.toolchain.local_tool import LocalTool
from pipeline.toolchain.options import FLOATS, CompileOptions

HOME = "PULSAR2_HOME"
OLDEST, SECOND = (4, 0), (7, 0)
POST_TYPES = ("bf16", "s8")
WEIGHT_TYPES = ("bf16", "s8", "s4")
_VERSION = re.compile(rb"^\W*version\W+(\d+)\.(\d+)(\S*)", re.IGNORECASE | re.MULTILINE)
_PROGRAMS = ("bin/pulsar2", "pulsar2")


def tool_words(tool: LocalTool, input_path: Path, output_path: Path) -> list[str]:
    """How the compiler is called, up to its own first word; a directory's place is put for `{input}` and `{output}`.

    Raises
    ------
    ToolchainError : neither a command nor an installation is named
    MissingFileError : an installation without the program
    """
    if tool.command:
        places = {"{input}": str(input_path), "{output}": str(output_path)}
        return [re.sub(r"\{(input|output)\}", lambda found: places[found[0]], word) for word in tool.command]
    home = variable(HOME)
    if not home:
        expected = f"{HOME}, or the command in templates.pulsar2"
        raise ToolchainError("the vendor's compiler is not named", where="pulsar2", expected=expected)
    for program in (Path(home) / name for name in _PROGRAMS):
        if program.is_file():
            return [str(program.absolute())]
    raise MissingFileError(f"{HOME} has no compiler", file=home, expected=" or ".join(_PROGRAMS))


def parse_version(answer: bytes) -> str | None:
    """`7.0` of what `pulsar2 version` prints: `version: 7.0`, and a commit."""
    found = _VERSION.search(answer)
    return None if found is None else b"".join((found[1], b".", found[2], found[3])).decode("utf-8", "replace")


def version_pair(version: str) -> tuple[int, int]:
    """Major and minor number."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


def build_words(options: CompileOptions, input_path: str, output_path: str, second: bool, parallel: int) -> list[str]:
    """What follows the compiler's name.

    Parameters
    ----------
    second : `llm_build2` instead of `llm_build`
    parallel : layers that are compiled at a time

    Raises ToolchainError for a ladder with gaps, which `llm_build2` has no word for.
    """
    words = ["llm_build2" if second else "llm_build", "--input_path", input_path, "--output_path", output_path]
    words += ["--hidden_state_type", "bf16", *(_second_lengths(options) if second else _lengths(options))]
    words += ["--chip", options.chip, "-c", "0", "--parallel", str(parallel)]
    return [*words, "-w", options.weight_type, "--post_weight_type", options.post_type]


def build_variables(options: CompileOptions) -> dict[str, str]:
    """Environment variables that go with it."""
    return {"FLOAT_MATMUL_USE_CONV_EU": "1"} if options.weight_type in FLOATS else {}


def _lengths(options: CompileOptions) -> list[str]:
    words = ["--kv_cache_len", str(options.kv_cache_len), "--prefill_len", str(options.prefill_len)]
    return words + [word for prefix in options.ladder()[1:] for word in ("--last_kv_cache_len", str(prefix))]


def _second_lengths(options: CompileOptions) -> list[str]:
    step, ladder = options.prefill_len, options.ladder()
    if ladder != list(range(0, ladder[-1] + 1, step)):
        reason = "llm_build2 makes every step of the ladder"
        raise ToolchainError(reason, where="last_kv_cache_len", expected=f"multiples of {step}", found=ladder)
    words = ["--max_context", str(options.kv_cache_len + 1), "--prefill_len", str(ladder[-1] + step)]
    return [*words, "--prefill_step_size", str(step)]
