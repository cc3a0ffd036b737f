"""The console command `engineset`."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Entry point of the console script; SIGINT ends it with 130 from the first import on."""
    try:
        from pipeline.cli.main import run_commands

        code = run_commands()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
