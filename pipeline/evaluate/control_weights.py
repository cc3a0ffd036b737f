"""The control's weights: a GGUF's tensors under their GGUF names, as an engine set of given flags stores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, dequantize

from pipeline.errors import CheckpointError, MissingFileError
from pipeline.evaluate.control_quantize import INTEGERS, Quantization

Array = npt.NDArray[Any]
Change = Callable[[str, Array], Array]

EMBEDDING, HEAD, FINAL_NORM = "token_embd.weight", "output.weight", "output_norm.weight"
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
FOLDED = {
    "attn_q": "attn_norm",
    "attn_k": "attn_norm",
    "attn_v": "attn_norm",
    "ffn_gate": "ffn_norm",
    "ffn_up": "ffn_norm",
}


class Source:
    """Tensors of a GGUF as float32, read one at a time.

    Parameters
    ----------
    change : what is done to a tensor (GGUF name, float32) before anything else, such as the merge of an adapter

    Raises
    ------
    MissingFileError : no such file
    CheckpointError : not a GGUF
    """

    def __init__(self, path: str | Path, change: Change | None = None) -> None:
        self.path, self._change = Path(path), change
        if not self.path.is_file():
            raise MissingFileError("no such GGUF", file=self.path)
        try:
            reader = GGUFReader(self.path)
        except ValueError as error:
            raise CheckpointError(str(error), file=self.path) from None
        self.fields = reader.fields
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}

    def names(self) -> list[str]:
        return list(self._tensors)

    def read(self, name: str) -> Array:
        """Raises CheckpointError for a tensor that is absent or cannot be dequantized."""
        if name not in self._tensors:
            raise CheckpointError("tensor is absent", file=self.path, where=name)
        tensor = self._tensors[name]
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            kind = tensor.tensor_type.name
            raise CheckpointError("cannot be dequantized", file=self.path, where=name, found=kind) from None
        values = values.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        return values if self._change is None else self._change(name, values)


def stored_weights(
    source: Source,
    how: Quantization | None,
    embedding_scale: np.float32 | None = None,
    kept: Sequence[int] | None = None,
    base: Source | None = None,
) -> dict[str, Array]:
    """GGUF name -> what an engine computes with, for every tensor, embedding and head apart.

    Parameters
    ----------
    how : flags of the engines; None leaves all as they are
    embedding_scale : factor of the embedding, the product rounded to float32
    kept : rows of the head that are there, in this order
    base : weights whose scales are used, where an engine's own are kept
    """
    names = source.names()
    weights = {name: _stored(source, name, how, base) for name in names if name not in (EMBEDDING, HEAD)}
    weights[HEAD] = _head(source, how, kept, base)
    embedding = source.read(EMBEDDING)
    if embedding_scale is not None:
        embedding = embedding * embedding_scale
    weights[EMBEDDING] = embedding if how is None else Quantization().stored(embedding, "bf16")
    for norm in _ones(names, how):
        weights[norm] = np.ones_like(weights[norm])
    return weights


def _stored(source: Source, name: str, how: Quantization | None, base: Source | None) -> Array:
    if how is None:
        return source.read(name)
    kind = how.head_type if name == FINAL_NORM else how.weight_type
    if _part(name) not in MATRICES or kind not in INTEGERS:
        return how.stored(source.read(name), kind)
    compiled = None if base is None else _folded(base, name, how)
    return how.quantized(_folded(source, name, how), kind, compiled)


def _folded(source: Source, name: str, how: Quantization) -> Array:
    values, part = source.read(name), _part(name)
    if not how.fold_norms or part not in FOLDED:
        return values
    gain: Array = source.read(name.replace(part, FOLDED[part]))
    return values * gain


def _head(source: Source, how: Quantization | None, kept: Sequence[int] | None, base: Source | None) -> Array:
    rows = slice(None) if kept is None else list(kept)

    def values(of: Source) -> Array:
        head = of.read(HEAD if HEAD in of.names() else EMBEDDING)[rows]
        folded = how is not None and how.fold_norms and how.head_type in INTEGERS
        return head * of.read(FINAL_NORM) if folded else head

    if how is None or how.head_type not in INTEGERS:
        return values(source) if how is None else how.stored(values(source), how.head_type)
    return how.quantized(values(source), how.head_type, None if base is None else values(base))


def _ones(names: Sequence[str], how: Quantization | None) -> list[str]:
    """Norms whose gain is in the projections behind them."""
    if how is None or not how.fold_norms:
        return []
    gone = set(FOLDED.values()) if how.weight_type in INTEGERS else set()
    final = [FINAL_NORM] if how.head_type in INTEGERS else []
    return [name for name in names if name.endswith(".weight") and _part(name) in gone] + final


def _part(name: str) -> str:
    """`attn_q` of `blk.3.attn_q.weight`; "" for a bias and what belongs to no layer."""
    pieces = name.split(".")
    return pieces[2] if len(pieces) == 4 and pieces[3] == "weight" else ""
