"""One line per fault on stderr and exit code 1 for what a user can mend; a traceback for our own bugs; 130 after SIGINT."""

from __future__ import annotations

import sys
import warnings

import click

from pipeline.cli.compile import llm_build
from pipeline.cli.evaluate import evaluate
from pipeline.cli.inspect import inspect
from pipeline.cli.run import run
from pipeline.cli.verify import verify
from pipeline.errors import EngineSetError

INTERRUPTED = 130


@click.group()
@click.version_option(package_name="engineset")
def commands() -> None:
    """Puts the weights of any GGUF into finished NPU engines, and proves it."""


for command in (run, inspect, verify, evaluate, llm_build):
    commands.add_command(command)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {message}", file=sys.stderr)


def main() -> None:
    """Entry point of the console script."""
    warnings.showwarning = _show_warning
    try:
        code = commands.main(standalone_mode=False)
    except EngineSetError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        code = 1
    except click.exceptions.Abort:
        code = INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        code = 1
    sys.exit(code)
