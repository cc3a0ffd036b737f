"""What a user sees of a run: one line per finished task, one line per fault, Luigi's summary; no tracebacks of user errors."""

from __future__ import annotations

import logging
import sys

import luigi
from luigi.event import Event

from pipeline.errors import EngineSetError

_TRACE = "Traceback (most recent call last)"
_SHARED = ("config", "gguf", "build_dir")


class QuietHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Luigi's records on stderr, without scheduling chatter and without what `report_fault` has said already."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        cause = record.exc_info[1] if record.exc_info else None
        ours = isinstance(cause, EngineSetError) or (_TRACE in message and "pipeline.errors." in message)
        layouts = _TRACE in message and "layouts.errors." in message
        dull = record.levelno <= logging.INFO and "Luigi Execution Summary" not in message
        if not (ours or layouts or dull):
            super().emit(record)


def report_fault(task: luigi.Task, error: BaseException) -> None:
    """One line on stderr for each fault of a user error."""
    if isinstance(error, EngineSetError):
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr, flush=True)


def report_done(task: luigi.Task, seconds: float) -> None:
    """One line on stderr for each finished task: its name and the parameters that it does not share with all others."""
    own = [str(value) for name, value in task.param_kwargs.items() if name not in _SHARED]
    print(f"{' '.join([type(task).__name__, *own]):<44} {seconds:7.2f} s", file=sys.stderr, flush=True)


def register(kind: type[luigi.Task]) -> None:
    """Attach the reports to a task class and its subclasses."""
    kind.event_handler(Event.FAILURE)(report_fault)
    kind.event_handler(Event.BROKEN_TASK)(report_fault)
    kind.event_handler(Event.PROCESSING_TIME)(report_done)
