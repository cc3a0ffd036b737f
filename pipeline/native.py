"""The native programs from Python: where they are installed, and a runner that is kept open for many requests."""

from __future__ import annotations

import json
import subprocess
import sysconfig
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from pipeline.environment import child_environment
from pipeline.errors import RunnerError

_CLOSE_SECONDS = 20.0
_TERMINATE_SECONDS = 10.0


def runner_path() -> Path:
    """The installed `engine-run`. Raises RunnerError when the native part is not installed."""
    return _installed(Path(sysconfig.get_path("scripts")) / "engine-run")


def simulator_path() -> Path:
    """The simulator's `libaxcl_rt.so`. Raises RunnerError when the native part is not installed."""
    return _installed(Path(sysconfig.get_path("data")) / "lib" / "engineset" / "libaxcl_rt.so")


def _installed(path: Path) -> Path:
    if not path.is_file():
        raise RunnerError("not installed, run `pip install .` in the repository", file=path)
    return path


def _fields(answer: dict[str, Any], *names: str) -> list[Any]:
    """The named parts of an answer of the runner's."""
    if missing := [name for name in names if name not in answer]:
        raise RunnerError("answer", expected=", ".join(missing), found=", ".join(answer))
    return [answer[name] for name in names]


@dataclass(frozen=True)
class GenerateResult:
    """How a generation ended. Times in seconds; `prefill_s` runs until the first logits, `decode_s` from there."""

    reason: Literal["eos", "length", "context"]
    prompt_tokens: int
    generated: int
    prefill_s: float
    decode_s: float


@dataclass(frozen=True)
class ScoreResult:
    """Teacher-forced likelihoods of n tokens.

    nll : float64 `[n - 1]`, -log p(tokens[i + 1] | tokens[..i]) in nats, the runner's exact bits; NaN for a token that the head
        does not keep (refused where no logits are asked for)
    positions : n, also the rows of the logits file
    logits : file of bf16 bits, uint16 little-endian `[n, rows of the head]`, if one was asked for
    """

    nll: npt.NDArray[np.float64]
    positions: int
    logits: Path | None = None


class Generation(Iterator[int]):
    """Token ids as the runner chooses them; `result` is there once they have all been read."""

    def __init__(self, read: Callable[[], dict[str, Any]]) -> None:
        self._read = read
        self._early: deque[int] = deque()
        self._error: RunnerError | None = None
        self._result: GenerateResult | None = None

    @property
    def result(self) -> GenerateResult | None:
        return None if self._early else self._result

    @property
    def running(self) -> bool:
        return self._result is None and self._error is None

    def __next__(self) -> int:
        if not self._early and self.running:
            self._read_one()
        if self._early:
            return self._early.popleft()
        if self._error is not None:
            raise self._error
        raise StopIteration

    def finish(self) -> GenerateResult:
        """Read the tokens that are left and return the result."""
        for _ in self:
            pass
        if self._result is None:
            raise RunnerError("the generation did not end")
        return self._result

    def read_ahead(self) -> None:
        """Read all that the runner still has to say, for later iteration."""
        while self.running:
            self._read_one()

    def _read_one(self) -> None:
        try:
            answer = self._read()
            if "token" in answer:
                self._early.append(int(answer["token"]))
            else:
                (done,) = _fields(answer, "done")
                self._result = GenerateResult(**done)
        except RunnerError as error:
            self._error = error


class Runner:
    """`engine-run SET --serve` as a context manager: the set is loaded once and answers many requests.

    Parameters
    ----------
    directory : an engine set
    library : the runtime library; None is the simulator of this package, a bare name is searched by the loader
    environment : variables added to the child's

    Raises
    ------
    RunnerError
        from the constructor if a program is not installed; from a request with the runner's own line.
    """

    def __init__(
        self, directory: Path, library: Path | str | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self._last: Generation | None = None
        chosen = simulator_path() if library is None else library
        command = [str(runner_path()), "--lib", str(chosen), "--serve", "--", str(directory)]
        self._answering = False  # a request is on its way and its last answer has not been read
        self._torn = False  # reading was interrupted: what comes next may be half a line
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=child_environment(environment),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child in order: end of input, or SIGTERM in the middle of an answer. Killed only if it hangs."""
        if self._stderr.closed:
            return
        if self._child.stdin is not None:
            with suppress(BrokenPipeError):
                self._child.stdin.close()
        if self._answering:
            self._child.terminate()
        try:
            self._wait()
        finally:
            if self._child.stdout is not None:
                self._child.stdout.close()
            self._stderr.close()

    def _wait(self) -> None:
        try:
            self._child.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.terminate()
            try:
                self._child.wait(_TERMINATE_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()

    def generate(
        self,
        tokens: Sequence[int],
        *,
        max_tokens: int = 32,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        prefill: bool = True,
        eos: Sequence[int] | None = None,
        ignore_eos: bool = False,
    ) -> Generation:
        """Continue a prompt. Temperature 0 is greedy.

        `eos` None means the set's own ids; the one that ends the text is among the tokens returned.
        """
        request: dict[str, Any] = {
            "op": "generate",
            "tokens": [int(token) for token in tokens],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "prefill": prefill,
            "ignore_eos": ignore_eos,
        }
        if eos is not None:
            request["eos"] = [int(token) for token in eos]
        self._send(request)
        self._last = Generation(self._answer)
        return self._last

    def score(self, tokens: Sequence[int], *, logits: Path | None = None, prefill: bool = True) -> ScoreResult:
        """Likelihood of every token after the first; with `logits`, every position's raw logits go to that file."""
        request: dict[str, Any] = {"op": "score", "tokens": [int(token) for token in tokens], "prefill": prefill}
        if logits is not None:
            request["logits"] = str(logits.absolute())
        self._send(request)
        values, positions = _fields(self._answer(), "nll", "positions")
        nll = np.array([float.fromhex(value) for value in values], dtype=np.float64)
        return ScoreResult(nll, int(positions), logits)

    def report(self) -> dict[str, Any]:
        """What the simulator counted. Raises RunnerError on a library that does not report."""
        self._send({"op": "report"})
        report: dict[str, Any]
        (report,) = _fields(self._answer(), "report")
        return report

    def _send(self, request: dict[str, Any]) -> None:
        if self._stderr.closed:
            raise RunnerError("the runner is closed", file=self.directory)
        if self._last is not None:
            self._last.read_ahead()
        if self._answering:
            raise RunnerError("interrupted in the middle of an answer, open another runner", file=self.directory)
        if self._child.stdin is None:
            raise RunnerError("the runner has no input", file=self.directory)
        self._answering = True
        try:
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _answer(self) -> dict[str, Any]:
        if self._torn or self._child.stdout is None:
            raise RunnerError("interrupted in the middle of an answer, open another runner", file=self.directory)
        self._torn = True
        line = self._child.stdout.readline()
        self._torn = False
        if not line.endswith(b"\n"):
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        self._answering = "token" in answer
        if "error" in answer:
            raise RunnerError(answer["error"])
        return answer

    def _ended(self) -> RunnerError:
        self._answering = False
        self._wait()
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        code = self._child.returncode
        return RunnerError("; ".join(lines[-2:]) if lines else f"the runner ended with exit status {code}")
