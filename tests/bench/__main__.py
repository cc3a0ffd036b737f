"""`python -m tests.bench`: every measure once, a table on stdout, `build/bench.json`."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable

from pipeline.files import write_json
from tests.bench import gguf_open, layout_speed, running, set_build
from tests.bench.measure import Row
from tests.bench.workspace import make_workspace
from tests.helpers.sets import ROOT


def main() -> None:
    workspace = make_workspace(ROOT / "build" / "bench")
    measures: list[Callable[[], list[Row]]] = [
        lambda: gguf_open.measure(workspace.folder),
        lambda: set_build.measure(workspace),
        lambda: layout_speed.measure(workspace),
        lambda: running.measure(workspace),
    ]
    rows: list[Row] = []
    for measure in measures:
        for row in measure():
            print("\n".join(row.lines()), flush=True)
            rows.append(row)
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    path = ROOT / "build" / "bench.json"
    write_json(path, {"machine": machine, "rows": [row.as_dict() for row in rows]})
    print("\nratios above 1: ours is better; copies and plain reads of the same bytes are bounds, not rivals")
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
