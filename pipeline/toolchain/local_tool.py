"""How a compiler that is not ours is called on this machine, as a config says it."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_HOURS = 4.0


@dataclass(frozen=True)
class LocalTool:
    """A program and how long it may take.

    command : words that go before the compiler's own, with `{input}` and `{output}` for the two directories that it is given
        (a container has to be told of them); empty means the installation that the environment names
    hours : after which a run is ended
    """

    command: tuple[str, ...] = ()
    hours: float = DEFAULT_HOURS


INSTALLED = LocalTool()
"""What the environment names."""
