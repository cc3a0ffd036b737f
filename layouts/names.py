"""What may be a name in a layout, and how many of a thing there may be."""

from __future__ import annotations

import re

from layouts.errors import LayoutError

_NAME = re.compile(r"[!#-&(-\[\]-~]{1,200}", re.ASCII)


def check_name(name: str) -> None:
    """Raises LayoutError for anything but 1 to 200 printable ASCII characters; no blanks, quotes or backslashes."""
    if not _NAME.fullmatch(name):
        raise LayoutError(
            "not a name", expected="1 to 200 printable characters, no blanks or quotes", found=repr(name[:80])
        )


def check_count(what: str, where: str, count: int, most: int) -> None:
    """Raises LayoutError for none or too many."""
    if not 1 <= count <= most:
        raise LayoutError(f"number of {what} out of range", where=where, expected=f"1 to {most}", found=count)
