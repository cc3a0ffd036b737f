"""Renders one chat template in a process of its own, with little memory and little time.

Run as a script by `chat.py`: it imports nothing of ours. A JSON request comes in on standard input, a JSON answer goes
out on standard output. A template is code from a stranger: the sandbox keeps it from the machine, the limits of the
process keep it from hanging and from eating memory, which no sandbox inside the interpreter can.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from types import TracebackType
from typing import Any

from jinja2 import TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY_BYTES = 1 << 29
OUTPUT_CHARACTERS = 1 << 22


class Generation(Extension):
    """`{% generation %}` marks what a trainer learns from; rendering prints its body."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's own makes an unsafe attribute undefined, which prints as nothing; here it is an error at once."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise SecurityError(f"access to {attribute!r} of a {type(obj).__name__}")


def environment() -> Sandbox:
    """What the authors of chat templates expect: the environment of the `transformers` library."""
    env = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = _to_json
    env.globals["raise_exception"] = _raise
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return env


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own filter this one escapes no HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)


def render(source: str, variables: dict[str, Any]) -> str:
    """The rendered text. Raises what the template raises, and TemplateError for too long an output."""
    parts: list[str] = []
    size = 0
    for part in environment().from_string(source).generate(variables):
        parts.append(part)
        size += len(part)
        if size > OUTPUT_CHARACTERS:
            raise TemplateError(f"the output is longer than {OUTPUT_CHARACTERS} characters")
    return "".join(parts)


def limit_process(cpu_seconds: int) -> None:
    """Beyond the limit on memory Python raises MemoryError, beyond the one on time the kernel ends the process."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CPU, cpu_seconds)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(kind: int, amount: int) -> None:
    """The hard limit may be lower already and cannot be raised."""
    _, hard = resource.getrlimit(kind)
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    resource.setrlimit(kind, (amount, hard))


def _report(kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    json.dump({"error": kind.__name__, "message": str(error), "line": getattr(error, "lineno", None)}, sys.stdout)


def main() -> None:
    sys.excepthook = _report
    request = json.load(sys.stdin)
    limit_process(request["cpu_seconds"])
    json.dump({"text": render(request["template"], request["variables"])}, sys.stdout)


if __name__ == "__main__":
    main()
