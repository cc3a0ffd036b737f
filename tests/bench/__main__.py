"""`python -m tests.bench`: every measure once, a table on stdout, `build/bench.json`."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable

from pipeline.files import write_json
from tests.bench import adapter, gguf_open, layout_speed, running, set_build
from tests.bench.measure import Row
from tests.bench.workspace import make_workspaces
from tests.helpers.sets import ROOT

IDLE = 0.5


def main() -> None:
    """Other processes spoil the figures, those of llama.cpp's spinning threads most: their load is stored with them."""
    load = os.getloadavg()[0]
    workspaces = make_workspaces(ROOT / "build" / "bench")
    measures: list[Callable[[], Iterable[Row]]] = [
        lambda: gguf_open.measure(workspaces["bf16"].folder),
        lambda: set_build.measure(workspaces),
        lambda: layout_speed.measure(workspaces),
        lambda: adapter.measure(workspaces["s8"]),
        lambda: running.measure(workspaces),
    ]
    rows: list[Row] = []
    for measure in measures:
        for row in measure():
            print("\n".join(row.lines()), flush=True)
            rows.append(row)
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    path = ROOT / "build" / "bench.json"
    write_json(
        path,
        {"machine": machine | {"load_before": load, "idle": load <= IDLE}, "rows": [row.as_dict() for row in rows]},
    )
    print("\nratios above 1: ours is better; copies and plain reads of the same bytes are bounds, not rivals")
    if load > IDLE:
        print(f"taken under load ({load:.1f} before the bench began): these figures say little, their ratios too")
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
