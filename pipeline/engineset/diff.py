"""What differs between two sets: files that only one has, the manifests, and the rest file by file."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from layouts.sidecar import read_layout
from layouts.stored import EngineLayout
from pipeline.container.blob import weight_blob
from pipeline.engineset.manifest import Manifest, read_manifest
from pipeline.engineset.names import MANIFEST_FILE, layout_file
from pipeline.errors import EngineSetError
from pipeline.files import files_below
from pipeline.refit.diff import EngineDifference, diff_engines
from pipeline.toolchain.kinds import KINDS

FOLLOWS = ("engines", "files")
"""Fields of a manifest that follow from the files, which are compared themselves."""


@dataclass(frozen=True)
class FieldChange:
    """A field of the manifest, by its path, and what either set has there; None where it has none."""

    field: str
    a: Any
    b: Any


@dataclass
class SetDifference:
    """Two sets.

    only_a, only_b : files that the other has not
    manifest : fields that differ
    files : files that differ, those of engines by tensor
    """

    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    manifest: list[FieldChange] = field(default_factory=list)
    files: dict[str, EngineDifference] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        return bool(self.only_a or self.only_b or self.manifest or self.files)


def diff_sets(a: Path, b: Path, layout: EngineLayout | None = None) -> SetDifference:
    """Compare two sets, or two directories of engines, file by file of one name.

    Parameters
    ----------
    layout : of the engines that have weights of its size, instead of the layout that a set carries

    Raises VerifyError for a manifest that has been changed.
    """
    names_a, names_b = (set(files_below(folder)) - {MANIFEST_FILE} for folder in (a, b))
    manifests = [read_manifest(folder) if (folder / MANIFEST_FILE).exists() else None for folder in (a, b)]
    carried = [_carried(folder, manifest) for folder, manifest in zip((a, b), manifests, strict=True)]
    found = SetDifference(sorted(names_a - names_b), sorted(names_b - names_a))
    found.manifest = list(_field_changes(_fields(manifests[0]), _fields(manifests[1])))
    for name in sorted(names_a & names_b):
        pair = a / name, b / name
        if not filecmp.cmp(*pair, shallow=False):
            usable = _agreed([item[name] for item in carried if name in item]) if layout is None else layout
            found.files[name] = diff_engines(*pair, _fitting(usable, pair))
    return found


def _carried(folder: Path, manifest: Manifest | None) -> dict[str, EngineLayout]:
    """Engine file -> the layout that its set carries for it: the one of the weights that its report lists."""
    if manifest is None:
        return {}
    layouts = [read_layout(folder / layout_file(kind)) for kind in KINDS if layout_file(kind) in manifest.files]
    by_names = {frozenset(layout.names()): layout for layout in layouts}
    reports = {name: frozenset(report["tensors"]) for name, report in manifest.engines.items()}
    return {name: by_names[tensors] for name, tensors in reports.items() if tensors in by_names}


def _agreed(layouts: list[EngineLayout]) -> EngineLayout | None:
    """The layout of an engine in both sets; None where they have its weights at different places."""
    if not layouts or any(item.tensors != layouts[0].tensors for item in layouts):
        return None
    return layouts[0]


def _fitting(layout: EngineLayout | None, pair: tuple[Path, Path]) -> EngineLayout | None:
    """The layout, if both files have weights of its size: a damaged container is compared byte by byte."""
    try:
        fits = layout is not None and all(weight_blob(path).size == layout.blob_bytes for path in pair)
    except EngineSetError:
        return None
    return layout if fits else None


def _fields(manifest: Manifest | None) -> dict[str, Any]:
    if manifest is None:
        return {}
    return {key: value for key, value in msgspec.to_builtins(manifest).items() if key not in FOLLOWS}


def _field_changes(a: Any, b: Any, path: str = "") -> Iterator[FieldChange]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            yield from _field_changes(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    elif a != b:
        yield FieldChange(path, a, b)
