"""One line per fault on stderr, exit code 1 for what a user can mend and 2 for wrong usage; tracebacks for our own bugs."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

import click

from pipeline.cli import INTERRUPTED
from pipeline.cli.compile import llm_build
from pipeline.cli.decode import decode
from pipeline.cli.diff import diff
from pipeline.cli.evaluate import evaluate
from pipeline.cli.hardware import hardware_report
from pipeline.cli.inspect import inspect
from pipeline.cli.locate import locate
from pipeline.cli.markers import markers
from pipeline.cli.plan import plan
from pipeline.cli.refit import refit
from pipeline.cli.rknn import rknn
from pipeline.cli.run import run
from pipeline.cli.sidecar import sidecar
from pipeline.cli.verify import verify
from pipeline.errors import EngineSetError, fault_lines

FAILED, USAGE = 1, 2


@click.group()
@click.version_option(package_name="engineset")
def commands() -> None:
    """Puts the weights of any GGUF into finished NPU engines, and proves it."""


for command in (
    run,
    plan,
    inspect,
    refit,
    verify,
    diff,
    evaluate,
    markers,
    decode,
    locate,
    sidecar,
    llm_build,
    rknn,
    hardware_report,
):
    commands.add_command(command)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {message}", file=sys.stderr)


def run_commands() -> int:
    """Run the command line; the exit code."""
    warnings.showwarning = _show_warning
    try:
        code = commands.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        return _fail([error.format_message()], error.exit_code)
    except BrokenPipeError:
        _drop_output()
        return FAILED
    except (EngineSetError, OSError) as error:
        lines = fault_lines(error)
        if lines is None:
            raise
        _drop_output()
        return _fail(lines, FAILED)
    return int(code or 0)


def _fail(lines: list[str], code: int) -> int:
    for line in lines:
        print(f"error: {line}", file=sys.stderr)
    return code


def _drop_output() -> None:
    """What cannot be written now cannot be written at exit either."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
