"""Engines of closed compilers that the user names: their containers, and their layouts where the weights are given too."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layouts.sidecar import write_layout
from pipeline.axmodel.describe import describe_engine
from pipeline.axmodel.walk import walk_engine
from pipeline.checkpoint.open import open_weights_source
from pipeline.container.blob import weight_blob, weight_parts
from pipeline.container.kinds import Container, container_of
from pipeline.decode.anchored import decode_engine
from pipeline.files import file_sha256
from pipeline.hardware.sections import Absent, Findings
from pipeline.rknn.describe import describe_rknn
from pipeline.rknn.walk import walk_rknn


def describe_container(found: Findings, engine: Path) -> None:
    """Kind, hash, io, blobs and the blob of the weights. Raises what walking it does."""
    kind = container_of(engine)
    found.data |= {
        "file": engine.name,
        "container": kind.name.lower(),
        "bytes": engine.stat().st_size,
        "sha256": file_sha256(engine),
    }
    found.data |= _described(engine, kind)
    blob = weight_blob(engine)
    parts = [asdict(part) for part in weight_parts(engine)] if kind is Container.AXMODEL else []
    found.data |= {"weights": asdict(blob), "parts": parts}


def _described(engine: Path, kind: Container) -> dict[str, Any]:
    if kind is Container.AXMODEL:
        return {"walk": describe_engine(walk_engine(engine))}
    return {"walk": describe_rknn(walk_rknn(engine))} if kind is Container.RKNN else {}


def describe_layout(found: Findings, engine: Path, checkpoint: Path | None) -> None:
    """Decode an engine from the weights that it was compiled from.

    Raises Absent without them, and what decoding does. The layout stays in `found`.
    """
    if checkpoint is None:
        raise Absent("no checkpoint given")
    anchored = decode_engine(engine, open_weights_source(checkpoint))
    layout = anchored.layout
    found.data |= {
        "kind": layout.kind,
        "blob_bytes": layout.blob_bytes,
        "tensors": {stored.name: {"shape": stored.shape, "codec": stored.codec} for stored in layout.tensors},
        "missing": [finding.name for finding in anchored.missing],
        "corrected": anchored.corrected,
        "shares": [asdict(share) for share in anchored.shares],
    }
    with tempfile.TemporaryDirectory(prefix="engineset-") as scratch:
        path = Path(scratch) / f"{engine.name}.layout.toml"
        write_layout(path, layout)
        found.texts[path.name] = path.read_text()
