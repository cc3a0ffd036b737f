"""The DAG of a run in a few lines: every kind of task, how many, and what it waits for."""

from __future__ import annotations

import sys

import luigi


def describe_dag(root: luigi.Task) -> list[str]:
    """One line per kind of task below and with `root`, requirements first; `[done]` where all of a kind are complete."""
    tasks: dict[luigi.Task, None] = {}
    _collect(root, tasks)
    kinds: dict[str, list[luigi.Task]] = {}
    for task in tasks:
        kinds.setdefault(type(task).__name__, []).append(task)
    return [_line(name, members) for name, members in kinds.items()]


def _collect(task: luigi.Task, found: dict[luigi.Task, None]) -> None:
    """`found` in an order in which requirements come first."""
    if task in found:
        return
    for required in task.deps():
        _collect(required, found)
    found[task] = None


def _line(name: str, members: list[luigi.Task]) -> str:
    count = f" x{len(members)}" if len(members) > 1 else ""
    waits = dict.fromkeys(type(required).__name__ for member in members for required in member.deps())
    done = " [done]" if all(member.complete() for member in members) else ""
    return f"  {name + count:<24}{'<- ' + ', '.join(waits) if waits else ''}{done}".rstrip()


_printed: set[str] = set()


def print_dag(root: luigi.Task, _dependency: luigi.Task) -> None:
    """Event handler: the DAG on stderr when Luigi discovers the first requirement of a task."""
    if root.task_id not in _printed:
        _printed.add(root.task_id)
        print("\n".join(["tasks:", *describe_dag(root)]), file=sys.stderr, flush=True)
