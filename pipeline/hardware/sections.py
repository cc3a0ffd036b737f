"""Sections of a report: what was found, or in one line why nothing was; never a reason to stop."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.environment import home_directory, host_name, user_name
from pipeline.errors import EngineSetError

Status = Literal["done", "failed", "absent"]
_PATH = re.compile(r"(?<![\w.])~?/(?:[^\s/:'\"]+/)+")
_SHORTEST_NAME = 3
_NOBODY = ("root", "localhost")


class Absent(Exception):
    """What a section is about is not there."""


@dataclass(frozen=True)
class Section:
    """One part of a report.

    reason : one line where the status is not `done`
    texts : file name -> text, what does not go into the JSON
    """

    name: str
    status: Status
    reason: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


@dataclass
class Findings:
    """What a section has found so far: it stays in the report when the rest of the section fails."""

    data: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def run_section(name: str, find: Callable[[Findings], None]) -> Section:
    """Run one part. Whatever it raises is its status, our own faults too: the other parts are to be heard."""
    found = Findings()
    status, reason = _status(find, found)
    texts = {file: scrub_text(text) for file, text in found.texts.items()}
    return Section(name, status, scrub_text(reason), scrub(found.data), texts)


def _status(find: Callable[[Findings], None], found: Findings) -> tuple[Status, str]:
    try:
        find(found)
    except Absent as reason:
        return "absent", str(reason)
    except (EngineSetError, OSError) as error:
        return "failed", str(error).splitlines()[0]
    except Exception as error:  # the report is for those who mend it
        return "failed", f"{type(error).__name__}: {error}".splitlines()[0]
    return "done", ""


def scrub(value: Any) -> Any:
    """`value` with every text in it scrubbed."""
    if isinstance(value, str):
        return scrub_text(value)
    if isinstance(value, dict):
        return {scrub_text(str(key)): scrub(item) for key, item in value.items()}
    return [scrub(item) for item in value] if isinstance(value, list | tuple) else value


def scrub_text(text: str) -> str:
    """Without directories of paths, host name and user name."""
    home = home_directory()
    text = text.replace(f"{home}/", "~/") if len(home.parts) > 1 else text
    text = _PATH.sub(".../", text)
    for name, word in ((host_name(), "HOST"), (user_name(), "USER"), (home.name, "USER")):
        if len(name) >= _SHORTEST_NAME and name not in _NOBODY:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", word, text)
    return text
