"""What a user sees of a run: one line per finished task, one line per fault, Luigi's summary; no tracebacks of user errors."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import luigi
from luigi.event import Event

from pipeline.errors import fault_lines
from pipeline.refit.report import clipped_tensors

_TRACE = "Traceback (most recent call last)"
_SHARED = ("config", "gguf", "lora", "lora_scale", "build_dir")


class QuietHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Luigi's records on stderr, without scheduling chatter and without what `report_fault` has said already."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        # Luigi logs what deps() raises as text, while it handles it
        _, cause, _ = record.exc_info or sys.exc_info()
        said = (cause is not None and fault_lines(cause) is not None) or (
            _TRACE in message and any(line in message for line in _reported)
        )
        dull = record.levelno <= logging.INFO and "Luigi Execution Summary" not in message
        if not (said or dull):
            super().emit(record)


_reported: set[str] = set()


def report_fault(task: luigi.Task, error: BaseException) -> None:
    """One line on stderr for each fault that the user can mend."""
    for line in fault_lines(error) or []:
        _reported.update((line, str(error)))  # Luigi's trace ends with the latter
        print(f"error: {line}", file=sys.stderr, flush=True)


def report_damage(damage: str) -> None:
    """One line on stderr, once, for each thing that is made again because something changed it."""
    if damage not in _reported:
        _reported.add(damage)
        print(f"damaged, made again: {damage}", file=sys.stderr, flush=True)


def report_clipped(engines: Mapping[str, Any]) -> None:
    """One line on stderr when elements were clipped: how many, and where most; every tensor stands in the manifest."""
    clipped = clipped_tensors(engines)
    if clipped:
        worst, count = next(iter(clipped.items()))
        line = f"clipped: {sum(clipped.values())} elements in {len(clipped)} tensors, most in {worst} ({count})"
        print(line, file=sys.stderr, flush=True)


def report_done(task: luigi.Task, seconds: float) -> None:
    """One line on stderr for each finished task: its name and the parameters that it does not share with all others."""
    own = [str(value) for name, value in task.param_kwargs.items() if name not in _SHARED]
    print(f"{' '.join([type(task).__name__, *own]):<44} {seconds:7.2f} s", file=sys.stderr, flush=True)


def report_warning(message: Warning | str, *_: object, **__: object) -> None:
    """One line on stderr for each warning, without the place in our code that gave it."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def register(kind: type[luigi.Task]) -> None:
    """Attach the reports to a task class and its subclasses."""
    warnings.showwarning = report_warning
    kind.event_handler(Event.FAILURE)(report_fault)
    kind.event_handler(Event.BROKEN_TASK)(report_fault)
    kind.event_handler(Event.PROCESSING_TIME)(report_done)
