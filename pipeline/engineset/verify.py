"""Whether a set is what its manifest says and holds what its source says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from layouts.codecs import codec
from layouts.sidecar import read_layout
from layouts.stored import EngineLayout
from pipeline.axmodel.blob import read_blob
from pipeline.checkpoint.open import open_checkpoint, source_files
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.engineset.manifest import Manifest, read_manifest
from pipeline.engineset.names import MANIFEST_FILE, engine_file, layout_file
from pipeline.errors import EngineSetError, MissingFileError, VerifyError
from pipeline.files import file_sha256
from pipeline.refit.plan import EnginePlan, all_plans, check_plan
from pipeline.refit.readback import read_back
from pipeline.refit.refit import row_ranges
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

    Parameters
    ----------
    source : GGUF or Hugging Face directory; the manifest's own path when None

    Raises
    ------
    EngineSetError : no set, no source, or a source of another shape
    """
    manifest = read_manifest(directory)
    result = Verification(directory)
    _compare_files(directory, manifest, result)
    checkpoint = open_checkpoint(source_of(directory, manifest, source))
    _compare_weights(directory, manifest, checkpoint, result)
    return result


def _compare_files(directory: Path, manifest: Manifest, result: Verification) -> None:
    present = {path.name for path in directory.iterdir()} - {MANIFEST_FILE}
    for name in sorted(present - set(manifest.files)):
        result.faults.append(f"{directory / name}: not in the manifest")
    for name, entry in manifest.files.items():
        path = directory / name
        if not path.is_file():
            result.faults.append(f"{path}: missing")
            continue
        result.files += 1
        size = path.stat().st_size
        if size != entry.size:
            result.faults.append(f"{path}: size (expected {entry.size}, found {size})")
        elif (found := file_sha256(path)) != entry.sha256:
            result.faults.append(f"{path}: sha256 (expected {entry.sha256}, found {found})")


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


def _compare_weights(directory: Path, manifest: Manifest, checkpoint: Checkpoint, result: Verification) -> None:
    config = manifest.model
    layouts = _layouts(directory, result)
    if layouts is None:
        return
    check_plan(config, layouts, checkpoint)
    prefill_len = int(manifest.template.options["prefill_len"])
    for plan in all_plans(config):
        path = directory / engine_file(config, prefill_len, plan.kind, plan.layer)
        try:
            result.elements += compare_engine(path, layouts[plan.kind], plan, checkpoint)
        except EngineSetError as error:
            result.faults.append(str(error))


def _layouts(directory: Path, result: Verification) -> dict[str, EngineLayout] | None:
    try:
        return {kind: read_layout(directory / layout_file(kind)) for kind in KINDS}
    except EngineSetError as error:
        result.faults.append(str(error))
        return None


def compare_engine(path: Path, layout: EngineLayout, plan: EnginePlan, checkpoint: Checkpoint) -> int:
    """Compare every copy of every weight of one engine with what the source gives; the number of elements compared.

    Raises VerifyError naming tensor and element, MissingFileError, AxmodelError.
    """
    if not path.is_file():
        raise MissingFileError("missing", file=path)
    blob, elements = read_blob(path), 0
    for assignment in plan.assignments:
        stored = layout[assignment.tensor]
        (source,) = assignment.sources
        for first, values in row_ranges(checkpoint, source, stored.shape):
            read_back(blob, stored, codec(stored.codec).encode(values), first, path)
            elements += values.size
    return elements
