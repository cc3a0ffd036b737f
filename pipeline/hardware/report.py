"""The report of a machine: all sections, as JSON, or as an archive that has logs and layouts too. Nothing is sent anywhere."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from layouts.atomic import write_beside
from pipeline.errors import ToolchainError
from pipeline.hardware.card import LIBRARY, describe_card
from pipeline.hardware.compiler import SMALL, SMALL_OPTIONS, describe_compiler, describe_markers
from pipeline.hardware.engines import describe_container, describe_layout
from pipeline.hardware.machine import describe_machine
from pipeline.hardware.sections import Section, run_section
from pipeline.model import ModelConfig
from pipeline.toolchain.local_tool import INSTALLED, LocalTool
from pipeline.toolchain.options import CompileOptions

FORMAT = 1
REPORT_FILE = "report.json"
ARCHIVE, JSON = ".tar.gz", ".json"


@dataclass(frozen=True)
class Asked:
    """What a report is about.

    engines : vendor engines to walk
    checkpoint : the weights that they were compiled from
    library : the card's, a path or a name that the loader finds
    tool : how the vendor's compiler is called
    model, options : what markers are compiled for
    """

    engines: Sequence[Path] = ()
    checkpoint: Path | None = None
    library: str = LIBRARY
    tool: LocalTool = INSTALLED
    model: ModelConfig = SMALL
    options: CompileOptions = SMALL_OPTIONS


def make_report(asked: Asked) -> list[Section]:
    """Every section; what fails is in its section and never raised."""
    sections = [
        run_section("machine", describe_machine),
        run_section("card", partial(describe_card, library=asked.library)),
        run_section("compiler", partial(describe_compiler, tool=asked.tool)),
        run_section("markers", partial(describe_markers, tool=asked.tool, model=asked.model, options=asked.options)),
    ]
    for number, engine in enumerate(asked.engines):
        sections.append(run_section(f"engine {number}", partial(describe_container, engine=engine)))
        layout = partial(describe_layout, engine=engine, checkpoint=asked.checkpoint)
        sections.append(run_section(f"layout {number}", layout))
    return sections


def report_json(sections: Sequence[Section]) -> dict[str, Any]:
    """Format number and section name -> status, reason, data."""
    parts = {one.name: {"status": one.status, "reason": one.reason, "data": one.data} for one in sections}
    return {"format": FORMAT, "sections": parts}


def check_report_path(path: Path) -> None:
    """Refuses, with ToolchainError, a name that says neither of the two forms, and a file that is there."""
    if not path.name.endswith((ARCHIVE, JSON)):
        raise ToolchainError("the report is neither form", file=path, expected=f"*{ARCHIVE} or *{JSON}")
    if path.exists():
        raise ToolchainError("the output is there already", file=path)


def write_report(path: Path, sections: Sequence[Section]) -> None:
    """Write `path`, all or nothing: by its name as JSON, or as an archive of that and every section's texts."""
    text = json.dumps(report_json(sections), indent=1, ensure_ascii=False).encode() + b"\n"
    with write_beside(path) as file:
        if path.name.endswith(JSON):
            file.write(text)
            return
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            _add(archive, REPORT_FILE, text)
            for section in sections:
                for name, content in section.texts.items():
                    _add(archive, f"{section.name.replace(' ', '-')}/{name}", content.encode())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """A member without owner and time."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
