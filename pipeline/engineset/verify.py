"""Whether a set is what its manifest says and holds what its source says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from layouts.encoding import encode_rows
from layouts.errors import LayoutError
from layouts.sidecar import read_layout
from layouts.stored import EngineLayout
from pipeline.axmodel.blob import read_blob
from pipeline.checkpoint.open import open_checkpoint, source_files
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.engineset.manifest import FileEntry, Manifest, read_manifest
from pipeline.engineset.names import MANIFEST_FILE, engine_file, layout_file
from pipeline.errors import EngineSetError, MissingFileError, VerifyError, fault_lines
from pipeline.files import file_sha256
from pipeline.refit.plan import EnginePlan, all_plans, check_plan
from pipeline.refit.readback import read_back
from pipeline.refit.refit import does_not_fit, row_ranges
from pipeline.toolchain.kinds import KINDS


@dataclass
class Verification:
    """What was compared, and one line for each fault."""

    directory: Path
    files: int = 0
    elements: int = 0
    faults: list[str] = field(default_factory=list)


def verify_set(directory: Path, source: Path | None = None) -> Verification:
    """Hash every file and read every weight of every copy back against the source.

    Whatever is wrong is a line of `faults`, and one fault does not hide another: without its source a set still has its
    files hashed. A layout that is not the manifest's is not read by.

    Parameters
    ----------
    source : GGUF or Hugging Face directory; the manifest's own path when None
    """
    result = Verification(directory)
    with _faults_into(result):
        manifest = read_manifest(directory)
        damaged = _compare_files(directory, manifest, result)
        with _faults_into(result, "; no weight was read back"):
            _compare_weights(directory, manifest, source, damaged, result)
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
    present, damaged = {path.name for path in directory.iterdir()} - {MANIFEST_FILE}, set(manifest.files)
    result.faults += [f"{directory / name}: not in the manifest" for name in sorted(present - damaged)]
    for name, entry in manifest.files.items():
        with _faults_into(result):
            _check_file(directory / name, entry)
            damaged.remove(name)
    result.files = len(present & set(manifest.files))
    return damaged


def _check_file(path: Path, entry: FileEntry) -> None:
    if not path.is_file():
        raise MissingFileError("missing", file=path)
    size = path.stat().st_size
    if size != entry.size:
        raise VerifyError("size", file=path, expected=entry.size, found=size)
    if (found := file_sha256(path)) != entry.sha256:
        raise VerifyError("sha256", file=path, expected=entry.sha256, found=found)


def source_of(directory: Path, manifest: Manifest, override: Path | None) -> Path:
    """The source of a set: what the user names, or what the manifest does, if it is there and has not changed.

    Raises MissingFileError or VerifyError.
    """
    path = override or Path(manifest.source.path)
    if not path.exists():
        reason = "the source is not there" if override else "the source of the set is not there, name it with --gguf"
        raise MissingFileError(reason, file=path, where=str(directory / MANIFEST_FILE))
    if override is None:
        for file in source_files(path):
            expected, found = manifest.source.files.get(file.name), file_sha256(file)
            if found != expected:
                reason = "not the source that the set was built from"
                raise VerifyError(reason, file=file, expected=expected, found=found)
    return path


def _compare_weights(
    directory: Path, manifest: Manifest, source: Path | None, damaged: set[str], result: Verification
) -> None:
    config, names = manifest.model, {kind: layout_file(kind) for kind in KINDS}
    for name in names.values():
        if name in damaged:
            raise VerifyError("not the layout that the manifest lists", file=directory / name)
    layouts = {kind: read_layout(directory / name) for kind, name in names.items()}
    checkpoint = open_checkpoint(source_of(directory, manifest, source))
    check_plan(config, layouts, checkpoint)
    prefill_len = int(manifest.template.options["prefill_len"])
    for plan in all_plans(config):
        path = directory / engine_file(config, prefill_len, plan.kind, plan.layer)
        if path.is_file():
            with _faults_into(result):
                result.elements += compare_engine(path, layouts[plan.kind], plan, checkpoint)


def compare_engine(path: Path, layout: EngineLayout, plan: EnginePlan, checkpoint: Checkpoint) -> int:
    """Compare every copy of every weight of one engine with what the source gives; the number of elements compared.

    Raises
    ------
    VerifyError : weights of another size than the layout's, or one that reads back otherwise; names tensor and element
    AxmodelError : not an engine
    NotFiniteError : the source has what the engine's codec cannot hold
    """
    blob, elements = read_blob(path), 0
    if blob.size != layout.blob_bytes:
        raise VerifyError("bytes of weights", file=path, where=layout.blob, expected=layout.blob_bytes, found=blob.size)
    for assignment in plan.assignments:
        stored = layout[assignment.tensor]
        (source,) = assignment.sources
        for first, values in row_ranges(checkpoint, source, stored.shape):
            try:
                encoded = encode_rows(stored, values)
            except LayoutError:
                raise does_not_fit(checkpoint, source, first, values, stored.codec) from None
            read_back(blob, stored, encoded, first, path)
            elements += values.size
    return elements
