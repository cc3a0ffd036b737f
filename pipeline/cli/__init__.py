"""The console command `engineset`."""

from pipeline.cli.main import main

__all__ = ["main"]
