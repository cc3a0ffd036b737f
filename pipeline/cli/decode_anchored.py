"""What is printed and drawn of a layout that was decoded from one engine and its weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from layouts.anchors.decode import Finding
from pipeline.cli.output import print_table
from pipeline.decode.anchored import Anchored
from pipeline.decode.plot import draw_blobs


def describe_anchored(found: Anchored) -> dict[str, Any]:
    """Everything that was found, as JSON values."""
    layout = found.layout
    return {
        "kind": layout.kind,
        "layer": found.layer if layout.kind == "layer" else None,
        "blob": layout.blob,
        "blob_bytes": layout.blob_bytes,
        "outside": layout.outside,
        "tensors": [_tensor(finding, found.corrected) for finding in found.findings],
        "blobs": [
            {
                "name": share.blob.name,
                "offset": share.blob.offset,
                "bytes": share.blob.size,
                "explained": share.explained,
                "zero": share.zero,
                "share": round(share.explained / share.blob.size, 6),
            }
            for share in found.shares
        ],
    }


def _tensor(finding: Finding, corrected: dict[str, int]) -> dict[str, Any]:
    stored, counts = finding.stored, finding.counts
    scales, bias = (None, None) if stored is None else (stored.scales, stored.bias)
    return {
        "name": finding.name,
        "shape": list(finding.dims),
        "codec": finding.codec,
        "rule": None if scales is None else f"{'row' if scales.shared else 'group'}/{scales.divisor:g}",
        "stored": counts.stored,
        "absent": counts.absent,
        "corrected": corrected.get(finding.name, counts.corrected),
        "unexplained": counts.unexplained,
        "copies": [] if stored is None else [copy.name for copy in stored.copies],
        "entries": None
        if scales is None
        else {"entry": scales.entry, "group": scales.group, "factor": scales.factor, "zero": scales.zero},
        "bias": None
        if bias is None
        else {
            "tensor": bias.tensor,
            "entry": bias.entry,
            "factor": bias.factor,
            "zero_point": bias.zero_point,
        },
        "folded": "" if stored is None else stored.folded,
        "beside": finding.beside,
        "reason": finding.reason if stored is None and not finding.beside else "",
    }


def show_anchored(found: Anchored) -> None:
    """The same as a table."""
    described = describe_anchored(found)
    header = ["tensor", "shape", "codec", "rule", "stored", "absent", "corrected", "unexplained", "copies", ""]
    print_table([header, *(_cells(tensor) for tensor in described["tensors"])])
    click.echo("")
    print_table(
        [blob["name"], f"{blob['bytes']} bytes", f"{100 * blob['share']:.2f} % explained", f"{blob['zero']} bytes 0"]
        for blob in described["blobs"]
    )


def _cells(tensor: dict[str, Any]) -> list[object]:
    shape = "x".join(map(str, tensor["shape"]))
    counts = [tensor[key] for key in ("stored", "absent", "corrected", "unexplained")]
    copies = " + ".join(tensor["copies"]) or "-"
    return [
        tensor["name"],
        shape,
        tensor["codec"] or "-",
        tensor["rule"] or "",
        *counts,
        copies,
        "; ".join(_remarks(tensor)),
    ]


def _remarks(tensor: dict[str, Any]) -> Iterator[str]:
    if tensor["entries"] is not None:
        entries = tensor["entries"]
        factor = "" if entries["factor"] == 1 else f" x {entries['factor']:.9g}"
        yield f"{entries['entry']} entries of {entries['group']} columns{factor}"
    if tensor["bias"] is not None:
        bias = tensor["bias"]
        zero = f", zero point {bias['zero_point']}" if bias["zero_point"] else ""
        yield f"{bias['entry']} bias entries of {bias['tensor'] or 'no bias'}, x {bias['factor']:.9g}{zero}"
    if tensor["folded"]:
        yield f"{tensor['folded']} folded"
    if tensor["beside"]:
        yield f"bias entries of {tensor['beside']}"
    if tensor["reason"]:
        yield tensor["reason"]


def plot_anchored(found: Anchored, path: Path) -> None:
    """The blobs as strips, coloured by tensor."""
    draw_blobs(found.layout, [share.blob for share in found.shares], path)
