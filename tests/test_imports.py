"""Who may import whom, read from the source text."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("layouts", "pipeline", "tasks")
OURS = {*PACKAGES, "tests"}
MAY_IMPORT = {"layouts": {"layouts"}, "pipeline": {"pipeline", "layouts"}, "tasks": set(PACKAGES)}
REFERENCE = "pipeline.toolchain.reference"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(text: str, module: str) -> Iterator[str]:
    """Every imported module, at any depth of the file; `from a import b` gives a and a.b; relative ones resolved."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*parent, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def sources(*folders: str) -> dict[str, set[str]]:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {module_name(path): set(imports_of(path.read_text("utf-8"), module_name(path))) for path in files}


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def test_the_reader_sees_every_form() -> None:
    text = "import a.b as c\nfrom d import e\nfrom . import f\nfrom ..g import h\ndef x():\n    import i\n"
    assert set(imports_of(text, "p.q.r")) == {"a.b", "d", "d.e", "p.q", "p.q.f", "p.g", "p.g.h", "i"}
    assert {"layouts.fit", "pipeline.model"} <= sources(*PACKAGES).keys()


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_import_only_what_is_to_their_right(package: str) -> None:
    wrong = [
        f"{module} imports {name}"
        for module, names in sources(package).items()
        for name in sorted(names)
        if name.split(".")[0] in OURS - MAY_IMPORT[package]
    ]
    assert not wrong


def test_layouts_need_only_arrays() -> None:
    allowed = {*sys.stdlib_module_names, "layouts", "ml_dtypes", "numpy", "tomli_w"}
    found = {name.split(".")[0] for names in sources("layouts").values() for name in names}
    assert found <= allowed


def test_only_tasks_import_luigi() -> None:
    found = [
        module for module, names in sources("layouts", "pipeline").items() if any(within(n, "luigi") for n in names)
    ]
    assert not found


def test_reference_compiler_is_imported_by_the_toolchain_alone() -> None:
    found = [
        module
        for module, names in sources(*PACKAGES).items()
        if any(within(name, REFERENCE) for name in names) and not within(module, "pipeline.toolchain")
    ]
    assert not found


def test_control_is_independent() -> None:
    """Nothing that it imports, directly or not, is of layouts or of refit; the root of the errors is all they share."""
    known = sources("layouts", "pipeline")
    pending, reached = ["pipeline.evaluate.control"], set()
    while pending:
        module = pending.pop()
        reached.add(module)
        pending += [name for name in known.get(module, ()) if name in known and name not in reached]
    reached -= {"layouts", "layouts.errors"}
    assert "pipeline.errors" in reached
    assert not [name for name in reached if within(name, "layouts") or within(name, "pipeline.refit")]


def test_one_module_reads_the_environment() -> None:
    files = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    readers = {path.name for path in files if re.search(r"\bos\.(environ|getenv)\b", path.read_text("utf-8"))}
    worker = "rknn_worker.py"  # runs under another interpreter, where none of our modules are
    assert readers - {worker} == {"environment.py"}
