"""Drives a local Pulsar2, the vendor's closed compiler (docs/pulsar2.md).

What can be known to fail is refused before it starts; what it wrote is checked before anything is where templates are.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.checkpoint.protocol import Checkpoint
from pipeline.engineset.names import engine_file
from pipeline.errors import ToolchainError
from pipeline.model import ModelConfig
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, KINDS
from pipeline.toolchain.local_tool import LocalTool
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.pulsar2_checks import check_disk, check_free_way, check_request, choose_parallel
from pipeline.toolchain.pulsar2_command import (
    SECOND,
    build_variables,
    build_words,
    parse_version,
    tool_words,
    version_pair,
)
from pipeline.toolchain.pulsar2_files import Made, made_files
from pipeline.toolchain.pulsar2_source import check_reachable, check_source, is_directory_of, write_source
from pipeline.toolchain.reference import compile_model
from pipeline.toolchain.streamed import Ended, plain, run_streamed

PULSAR2 = "pulsar2"
LOG_FILE = "pulsar2.log"
VERSION_SECONDS = 180.0
_KILLED = (-9, 137)


@dataclass(frozen=True)
class Pulsar2:
    """A compiler that has said its version."""

    tool: LocalTool
    version: str

    def compile(
        self, checkpoint: Checkpoint, output: Path, options: CompileOptions, kinds: Collection[str] = KINDS
    ) -> list[Path]:
        """Compile a checkpoint into `output` (created, or empty); the files of `kinds` under the names that sets have.

        The compiler's log goes to stderr as it comes and lies beside the engines in the end; the error of a failure says where.

        Raises
        ------
        ToolchainError : what the compiler is known not to do, cannot do here, did not do, or did not do in time
        CheckpointError, MissingFileError : a checkpoint that it would compile to something else without saying so
        """
        config = checkpoint.config
        check_request(self.version, config, options)
        check_free_way(output)
        parallel = choose_parallel(config)
        output.mkdir(parents=True, exist_ok=True)
        with _workspace(output) as work:
            source = self._source(checkpoint, work)
            made, log = self._run(source, work / "output", config, options, kinds, parallel)
            shutil.move(log, output / LOG_FILE)
            log.parent.rmdir()
            return _place(made, checkpoint, output, options, kinds)

    def _source(self, checkpoint: Checkpoint, work: Path) -> Path:
        own = is_directory_of(checkpoint)
        check_disk(work, checkpoint.config, not own)
        source = checkpoint.path.absolute() if own else work / "input"
        if not own:
            write_source(source, checkpoint)
        check_source(source, checkpoint.config)
        if self.tool.command:
            check_reachable(source)
        return source

    def _run(
        self,
        source: Path,
        mounted: Path,
        config: ModelConfig,
        options: CompileOptions,
        kinds: Collection[str],
        parallel: int,
    ) -> tuple[Made, Path]:
        mounted.mkdir()
        engines = mounted / "engines"
        second = version_pair(self.version) >= SECOND
        words = tool_words(self.tool, source, mounted)
        words += build_words(options, str(source), str(engines), second, parallel)
        log = Path(tempfile.mkdtemp(prefix="engineset-pulsar2-")) / LOG_FILE
        _show(" ".join(words))
        ended = _start(words, log, self.tool.hours * 3600, build_variables(options))
        _check_ended(ended, log, self.tool.hours)
        try:
            return made_files(engines, config, options, kinds), log
        except ToolchainError as error:
            reason = f"Pulsar2 ended without an error, but: {error.reason}"
            raise ToolchainError(
                reason, file=log, where=error.where, expected=error.expected, found=error.found
            ) from None


def find_pulsar2(tool: LocalTool) -> Pulsar2:
    """The compiler that the config or the environment names.

    Raises ToolchainError or MissingFileError: none is named, it cannot be started, it does not say its version.
    """
    with tempfile.TemporaryDirectory(prefix="engineset-") as scratch:
        source, output, log = (Path(scratch) / name for name in ("input", "output", LOG_FILE))
        source.mkdir()
        output.mkdir()
        words = [*tool_words(tool, source, output), "version"]
        ended, answer = _start(words, log, VERSION_SECONDS, show=False), log.read_bytes()
    version = parse_version(answer)
    if version is None or ended.status or not ended.in_time:
        said = plain(answer.strip().rpartition(b"\n")[2])[:200] or "nothing"
        found = f"{said} ({ended})" if ended.in_time else "no end"
        raise ToolchainError(
            "the compiler does not say its version",
            file=words[0],
            where="version",
            expected="version: X.Y",
            found=found,
        )
    return Pulsar2(tool, version)


def _start(
    words: list[str], log: Path, seconds: float, added: dict[str, str] | None = None, show: bool = True
) -> Ended:
    try:
        return run_streamed(words, log, seconds, _show if show else lambda _: None, added)
    except OSError as error:
        raise ToolchainError(f"the compiler cannot be started: {error.strerror}", file=words[0]) from None


def _show(line: str) -> None:
    print(f"pulsar2: {line}", file=sys.stderr, flush=True)


def _check_ended(ended: Ended, log: Path, hours: float) -> None:
    if not ended.in_time:
        expected = f"at most {hours:g} h"
        raise ToolchainError("Pulsar2 did not end in time and was ended", file=log, expected=expected)
    if ended.status in _KILLED:
        raise ToolchainError("Pulsar2 was killed, as happens where memory runs out", file=log, found=ended)
    if ended.status:
        lines = [line for line in map(plain, log.read_bytes().splitlines()) if line]
        said = lines[-1][:200] if lines else "it said nothing"
        raise ToolchainError(f"Pulsar2 failed: {said}", file=log, found=ended)


def _place(
    made: Made, checkpoint: Checkpoint, output: Path, options: CompileOptions, kinds: Collection[str]
) -> list[Path]:
    """Under the names that sets have, in the order of the kinds; the embedding is ours where the compiler wrote none."""
    placed = []
    for (kind, layer), path in made.items():
        final = output / engine_file(checkpoint.config, options.prefill_len, kind, layer)
        placed.append(_take(path, final))
    if EMBEDDING_ENGINE in kinds and (EMBEDDING_ENGINE, 0) not in made:
        placed += compile_model(checkpoint, output, options, {EMBEDDING_ENGINE})
    return placed


def _take(path: Path, final: Path) -> Path:
    """Move a file, or copy it out of a directory that a container made as another user; on disk when this returns."""
    try:
        path.replace(final)
    except PermissionError:
        shutil.copyfile(path, final)
    with final.open("rb") as file:
        os.fsync(file.fileno())
    return final


@contextmanager
def _workspace(output: Path) -> Iterator[Path]:
    """A directory beside the output, on the same disk; what a container left there as another user may stay behind."""
    work = output.absolute().with_name(f".{output.name.strip('.')}.pulsar2")
    shutil.rmtree(work, ignore_errors=True)
    if work.exists():
        work = Path(tempfile.mkdtemp(prefix=work.name, dir=work.parent))
    work.mkdir(exist_ok=True)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if work.exists():
            warnings.warn(f"{work}: the compiler's files are another user's and stay", stacklevel=3)
