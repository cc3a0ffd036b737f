"""A picture of blobs: strips of bytes, coloured by the tensor that owns them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.atomic import write_beside
from layouts.marking import mark_tensor
from layouts.stored import EngineLayout
from pipeline.container.mapped import Blob
from pipeline.errors import ConfigError

WIDTH, HEIGHT = 1024, 96
FORMATS = ("png", "svg", "pdf")
NOTHING = (0.93, 0.93, 0.93)


def draw_blobs(layout: EngineLayout, blobs: list[Blob], path: Path) -> None:
    """Draw every blob as a strip: bytes from left to right, top to bottom within the strip's columns.

    Raises ConfigError for a file name that is no picture's.
    """
    kind = path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise ConfigError("not a picture's name", file=path, expected=" | ".join(f".{name}" for name in FORMATS))
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    owner = _owners(layout)
    colours = _colours(len(layout.tensors))
    rows = -(-len(layout.tensors) // 4)
    figure = Figure(figsize=(12, 1.2 + 1.4 * len(blobs) + 0.22 * rows), layout="constrained")
    axes = figure.subplots(len(blobs), 1, squeeze=False)[:, 0]
    for axis, blob in zip(axes, blobs, strict=True):
        start = blob.offset - layout.blob_offset
        axis.imshow(_strip(owner[start : start + blob.size], colours), aspect="auto", extent=(0, blob.size, 0, 1))
        axis.set_yticks([])
        axis.set_title(f"{blob.name}: {blob.size} bytes", fontsize=9, loc="left")
        axis.set_xlabel("byte", fontsize=8)
    names = [tensor.name for tensor in layout.tensors]
    handles = [Patch(color=tuple(colours[index + 1]), label=name) for index, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside lower left", ncols=4, fontsize=7)
    with write_beside(path) as file:
        figure.savefig(file, format=kind, dpi=130, metadata=_metadata(kind))


def _metadata(kind: str) -> dict[str, Any]:
    """No dates: equal layouts give equal pictures."""
    return {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]


def _owners(layout: EngineLayout) -> npt.NDArray[np.uint16]:
    """Number of the tensor, from 1, that owns each byte of the blob; 0 for none."""
    owner = np.zeros(layout.blob_bytes, np.uint16)
    for number, stored in enumerate(layout.tensors, 1):
        mask = np.zeros(layout.blob_bytes, np.uint8)
        mark_tensor(mask, stored, 0)
        owner[mask != 0] = number
    return owner


def _colours(count: int) -> npt.NDArray[np.float64]:
    from matplotlib import colormaps

    wheel = colormaps["turbo"]
    return np.array([NOTHING, *(wheel((number * 0.6180339887) % 1.0)[:3] for number in range(count))])


def _strip(owner: npt.NDArray[np.uint16], colours: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Pixels `[height, width, 3]`: a column holds consecutive bytes, sampled where there are more than pixels."""
    edges = np.linspace(0, len(owner), WIDTH + 1).astype(np.int64)
    image = np.zeros((HEIGHT, WIDTH, 3))
    for column in range(WIDTH):
        low, high = edges[column], max(edges[column] + 1, edges[column + 1])
        picked = np.linspace(low, high - 1, HEIGHT).astype(np.int64)
        image[:, column] = colours[owner[np.minimum(picked, len(owner) - 1)]]
    return image
