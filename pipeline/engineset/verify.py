"""Whether a set is what its manifest says and holds what its source says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layouts.sidecar import read_layout
from layouts.stored import EngineLayout, StoredTensor
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.container.blob import Bytes, read_blob
from pipeline.engineset.manifest import FileEntry, Manifest, read_manifest
from pipeline.engineset.names import MANIFEST_FILE, layout_file
from pipeline.engineset.sources import open_set_source
from pipeline.errors import EngineSetError, MissingFileError, VerifyError, fault_lines
from pipeline.files import file_sha256, files_below
from pipeline.refit.assigned import AssignedWeights
from pipeline.refit.choose import ENGINE, ScaleMode, stored_digest
from pipeline.refit.compare import compare_weight
from pipeline.refit.plan import EnginePlan, all_plans, check_plan, folded_kinds
from pipeline.toolchain.kinds import KINDS


@dataclass
class Verification:
    """What was compared, and one line for each fault."""

    directory: Path
    files: int = 0
    elements: int = 0
    faults: list[str] = field(default_factory=list)


def verify_set(directory: Path, source: Path | None = None, adapter: Path | None = None) -> Verification:
    """Hash every file and read every weight of every copy back against the source.

    Whatever is wrong is a line of `faults`, and one fault does not hide another: without its source a set still has its
    files hashed. A layout that is not the manifest's is not read by.

    Parameters
    ----------
    source : GGUF or Hugging Face directory; the manifest's own path when None
    adapter : the LoRA adapter that was merged, likewise
    """
    result = Verification(directory)
    with _faults_into(result):
        manifest = read_manifest(directory)
        damaged = _compare_files(directory, manifest, result)
        with _faults_into(result, "; no weight was read back"):
            _compare_weights(directory, manifest, (source, adapter), damaged, result)
    return result


@contextmanager
def _faults_into(result: Verification, consequence: str = "") -> Iterator[None]:
    """Turns an error that a user can mend into fault lines, the last one with what follows from it."""
    try:
        yield
    except (EngineSetError, OSError) as error:
        lines = fault_lines(error)
        if lines is None:
            raise
        result.faults += [*lines[:-1], lines[-1] + consequence]


def _compare_files(directory: Path, manifest: Manifest, result: Verification) -> set[str]:
    """Names of the files of the manifest that are not what it says."""
    present, damaged = set(files_below(directory)) - {MANIFEST_FILE}, set(manifest.files)
    result.faults += [f"{directory / name}: not in the manifest" for name in sorted(present - damaged)]
    for name, entry in manifest.files.items():
        with _faults_into(result):
            check_file(directory / name, entry)
            damaged.remove(name)
    result.files = len(present & set(manifest.files))
    return damaged


def check_file(path: Path, entry: FileEntry) -> None:
    """Raises MissingFileError or VerifyError for a file that is not what its manifest says."""
    if not path.is_file():
        raise MissingFileError("missing", file=path)
    size = path.stat().st_size
    if size != entry.size:
        raise VerifyError("size", file=path, expected=entry.size, found=size)
    if (found := file_sha256(path)) != entry.sha256:
        raise VerifyError("sha256", file=path, expected=entry.sha256, found=found)


def _compare_weights(
    directory: Path,
    manifest: Manifest,
    overrides: tuple[Path | None, Path | None],
    damaged: set[str],
    result: Verification,
) -> None:
    config, names = manifest.model, {kind: layout_file(kind) for kind in KINDS}
    needed = [*names.values(), *filter(None, [manifest.source.vocab_keep])]
    for name in needed:
        if name in damaged:
            raise VerifyError("not what the manifest lists", file=directory / name)
    layouts = {kind: read_layout(directory / name) for kind, name in names.items()}
    checkpoint = open_set_source(directory, manifest, *overrides)
    check_plan(config, layouts, checkpoint)
    for plan in all_plans(config, folded_kinds(layouts)):
        name = manifest.names.file(plan.kind, plan.layer)
        if name not in manifest.files:
            result.faults.append(f"{directory / name}: the manifest lists no such engine")
        elif (directory / name).is_file():
            with _faults_into(result):
                expected = Expected(checkpoint, manifest.scales, manifest.engines.get(name, {}).get("tensors", {}))
                result.elements += compare_engine(directory / name, layouts[plan.kind], plan, expected)


@dataclass(frozen=True)
class Expected:
    """What an engine is compared with: the source, how scales were chosen, and the report of each weight."""

    checkpoint: Checkpoint
    scales: ScaleMode
    reports: Mapping[str, Any]


def compare_engine(path: Path, layout: EngineLayout, plan: EnginePlan, expected: Expected) -> int:
    """Compare every copy of every weight of one engine with what the source gives; the number of elements compared.

    An engine that kept the scales of its template is compared with what its own scales give: every integer is within one
    step of that, the copies are equal, and first copy and entries are those that its report has the hash of.

    Raises
    ------
    VerifyError : weights of another size than the layout's, or one that reads back otherwise; names tensor and element
    AxmodelError : not an engine
    ToolchainError : an engine's own scale that is 0, infinite or contradicts itself
    NotFiniteError : the source has what the engine's codec cannot hold
    """
    blob, elements = read_blob(path), 0
    if blob.size != layout.blob_bytes:
        raise VerifyError("bytes of weights", file=path, where=layout.blob, expected=layout.blob_bytes, found=blob.size)
    weights = AssignedWeights(expected.checkpoint, plan, layout)
    for stored in layout.tensors:
        elements += compare_weight(weights, stored, blob, expected.scales, path)
        if expected.scales == ENGINE and stored.scales is not None:
            _compare_digest(blob, stored, path, expected.reports.get(stored.name))
    return elements


def _compare_digest(blob: Bytes, stored: StoredTensor, path: Path, report: object) -> None:
    noted = report.get("stored_sha256") if isinstance(report, dict) else None
    if (found := stored_digest(blob, stored)) != noted:
        reason = "integers or scale entries are not those that were written"
        raise VerifyError(reason, file=path, where=stored.name, expected=noted, found=found)
