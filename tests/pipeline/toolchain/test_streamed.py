"""A child that is followed and ended: by its time, by our own end, with all that it has started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.toolchain import streamed
from pipeline.toolchain.streamed import Ended, run_streamed
from tests.helpers.processes import is_gone
from tests.helpers.sets import ROOT

SH = ("sh", "-c")


def run(tmp_path: Path, script: str, seconds: float = 20.0) -> tuple[Ended, list[str]]:
    lines: list[str] = []
    return run_streamed([*SH, script], tmp_path / "log", seconds, lines.append, {"ADDED": "7"}), lines


def test_lines_of_both_streams_in_their_order(tmp_path: Path) -> None:
    ended, lines = run(
        tmp_path, r"echo one; echo two >&2; printf '10%%\r20%%\rdone\n\n'; echo $ADDED; printf end; exit 3"
    )
    assert lines == ["one", "two", "10%", "20%", "done", "7", "end"]
    assert (ended, str(ended)) == (Ended(3, True), "exit status 3")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n10%\r20%\rdone\n\n7\nend"


def test_lines_come_while_the_child_runs(tmp_path: Path) -> None:
    go = tmp_path / "go"
    seen: list[str] = []

    def show(line: str) -> None:
        seen.append(line)
        go.touch()

    script = f"echo first; while ! test -e {go}; do sleep 0.01; done; echo second"
    assert run_streamed([*SH, script], tmp_path / "log", 20, show).status == 0
    assert seen == ["first", "second"]


def test_child_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    assert run(tmp_path, "exec >&- 2>&-; sleep 0.3; exit 5")[0] == Ended(5, True)


def test_grandchild_that_keeps_the_output_open_is_not(tmp_path: Path) -> None:
    ended, lines = run(tmp_path, "sleep 600 & echo $!; exit 0")
    assert ended == Ended(0, True)
    assert is_gone(int(lines[0]))


def test_time_is_up_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "GRACE_SECONDS", 0.2)
    ended, lines = run(tmp_path, "trap '' TERM; sleep 600 & echo $!; echo $$; wait; sleep 600", 0.5)
    assert ended == Ended(-signal.SIGKILL, False)
    assert all(is_gone(int(pid)) for pid in lines)


def test_terminated_child_may_still_say_how_it_ended(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, "trap 'exit 9' TERM; while true; do sleep 0.05; done", 0.5)
    assert ended == Ended(9, False)


def test_what_show_raises_ends_the_child(tmp_path: Path) -> None:
    lines: list[str] = []

    def show(line: str) -> None:
        lines.append(line)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_streamed([*SH, "echo $$; sleep 600"], tmp_path / "log", 20, show)
    assert is_gone(int(lines[0]))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_our_end_is_the_childs(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import sys; from pathlib import Path; from pipeline.toolchain.streamed import run_streamed\n"
        f"log = Path({str(tmp_path / 'log')!r})\n"
        "run_streamed(['sh', '-c', 'echo $$; sleep 600'], log, 600, lambda line: print(line, flush=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ours:
        pid = int(ours.stdout.readline()) if ours.stdout else 0
        ours.send_signal(number)
        assert ours.wait(20) == -number
    assert is_gone(pid)
