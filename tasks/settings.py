"""Luigi's configuration, from whichever directory it is started: it reads `luigi.cfg` only where it stands.

`tasks/luigi.cfg` is a link to the one at the root, and a copy of it in a wheel.

`luigi --module tasks` imports this before it reads any setting.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from luigi import configuration

configuration.add_config_path(str(Path(__file__).with_name("luigi.cfg")))
configuration.get_config().set("core", "logging_conf_file", str(Path(__file__).with_name("logging.cfg")))


def _quiet_interrupt(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """One word for SIGINT; everything else as ever."""
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _quiet_interrupt
