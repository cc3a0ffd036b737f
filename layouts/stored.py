"""What a weight blob holds: tensors with all their copies."""

from __future__ import annotations

import re
from dataclasses import dataclass

from layouts.bias import Bias
from layouts.copies import Copy, Plane, Rect
from layouts.errors import LayoutError
from layouts.names import check_name
from layouts.overlap import check_no_overlap
from layouts.tensors import StoredTensor, from_matrix, to_matrix

__all__ = ["KINDS", "Bias", "Copy", "EngineLayout", "Plane", "Rect", "StoredTensor", "from_matrix", "to_matrix"]

KINDS = ("layer", "post", "embedding", "model")
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class EngineLayout:
    """All weights of one blob.

    Parameters
    ----------
    kind : layer, post, embedding, or model: a whole network
    blob : name of the blob in its container, such as `npu_params`
    blob_bytes : its size
    blob_offset : where it begins in the engine file that the layout was decoded from
    tensors : engine tensor names are HF names without `model.layers.{l}.`, those of a model are its checkpoint's
    outside : SHA-256 of the engine file with every bit that the layout owns set to 0, in hexadecimal; "" where not known

    Raises
    ------
    LayoutError : a name twice, a piece outside the blob, two elements in one place.
    """

    kind: str
    blob: str
    blob_bytes: int
    tensors: tuple[StoredTensor, ...]
    blob_offset: int = 0
    outside: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LayoutError("unknown kind of engine", expected=" | ".join(KINDS), found=self.kind)
        check_name(self.blob)
        if self.outside and not _SHA256.fullmatch(self.outside):
            raise LayoutError(
                "not a SHA-256", where="outside", expected="64 hexadecimal digits", found=self.outside[:80]
            )
        if not (0 <= self.blob_bytes < 1 << 50 and 0 <= self.blob_offset < 1 << 50):
            raise LayoutError("size of the blob out of range", where=self.blob, found=self.blob_bytes)
        if len({tensor.name for tensor in self.tensors}) != len(self.tensors):
            raise LayoutError("two tensors of one name", where=self.blob)
        owned = [(tensor.name, layout) for tensor in self.tensors for layout in tensor.layouts()]
        for name, layout in owned:
            if layout.extent[1] > self.blob_bytes * 8:
                expected = f"{self.blob_bytes * 8} bits"
                raise LayoutError("piece outside the blob", where=name, expected=expected, found=layout.extent[1])
        check_no_overlap(owned)

    def names(self) -> list[str]:
        return [tensor.name for tensor in self.tensors]

    def __getitem__(self, name: str) -> StoredTensor:
        """Raises LayoutError for an unknown name."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise LayoutError("no such tensor in the layout", where=name)
