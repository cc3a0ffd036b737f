"""A layout of one build of a model and another engine of it: axes of the source, moved constants, the engine's own scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from layouts.algebra import Piece
from layouts.decode_affine import Part, Rule, scale_range
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from pipeline.errors import DecodeRefused, ToolchainError
from pipeline.rknn.walk import RknnEngine
from pipeline.toolchain.rknn_markers import Float32, Weight
from pipeline.toolchain.rknn_runs import weight_runs


def relocated(layout: EngineLayout, origin: RknnEngine, engine: RknnEngine) -> EngineLayout:
    """The layout of another build of the same model, whose constants may begin some bytes earlier or later.

    Raises DecodeRefused for an engine whose constants are other ones.
    """
    old, new = ({t.name: t.data for t in of.constants() if t.data is not None} for of in (origin, engine))
    sizes = [{name: blob.size for name, blob in of.items()} for of in (old, new)]
    if sizes[0] != sizes[1]:
        apart = sorted(name for name, _ in set(sizes[0].items()) ^ set(sizes[1].items()))
        raise DecodeRefused("constants that are not those of the marker builds", file=engine.path, where=apart[0])
    moves = [
        (blob.offset - origin.body.offset, blob.size, new[name].offset - blob.offset) for name, blob in old.items()
    ]

    def moved(plane: Plane) -> Plane:
        return replace(plane, pieces=tuple(_moved(piece, moves) for piece in plane.pieces))

    def moved_copy(copy: Copy) -> Copy:
        entries, bias = (None if part is None else moved(part) for part in (copy.entries, copy.bias))
        return replace(copy, planes=tuple(moved(plane) for plane in copy.planes), entries=entries, bias=bias)

    tensors = tuple(replace(t, copies=tuple(moved_copy(copy) for copy in t.copies)) for t in layout.tensors)
    return replace(layout, tensors=tensors, blob_bytes=engine.body.size, blob_offset=engine.body.offset)


def _moved(piece: Piece, moves: Sequence[tuple[int, int, int]]) -> Piece:
    """A piece moved with the constant that it begins in. Raises DecodeRefused for one that is of several with other moves."""
    low, high = (bits // 8 for bits in piece.layout.extent)
    steps = {step for start, size, step in moves if start < high and low < start + size}
    if len(steps) != 1:
        raise DecodeRefused("a tensor in constants that are apart in another way", found=sorted(steps))
    return replace(piece, layout=replace(piece.layout, base=piece.layout.base + 8 * steps.pop()))


def engine_rules(engine: RknnEngine, weights: Sequence[Weight], matrices: Mapping[str, Float32]) -> dict[str, Rule]:
    """How an engine stores each weight, or each run of one that the compiler has cut along its columns.

    Parameters
    ----------
    matrices : the stored matrices that the engine was compiled from

    Raises ToolchainError for a weight that no operator takes beside one quantized input.
    """
    tensors = {tensor.name: tensor for tensor in engine.tensors}
    rules = {}
    for run in weight_runs(engine, weights):
        part, given = run.part, tensors[run.input]
        if len(given.limits) != 2:
            raise ToolchainError(
                "a weight that is not multiplied with a quantized input", file=engine.path, where=part.name
            )
        (zero,) = given.zero_points
        own = matrices[part.matrix][:, part.first : part.stop]
        rules[part.name] = Rule(*scale_range(own), given.exact_scale, zero, run.bias)
    return rules


def with_axes(layout: EngineLayout, weights: Sequence[Weight], parts: Mapping[str, Part] | None = None) -> EngineLayout:
    """The layout with the axes of the source's arrays, and which columns of them runs are."""
    axes = {weight.name: weight for weight in weights}
    whole = {weight.name: Part(weight.name, weight.name, 0, weight.shape[1]) for weight in weights}
    known = whole | dict(parts or {})
    return replace(
        layout,
        tensors=tuple(
            _with_axes(t, axes[known[t.name].matrix], known[t.name]) if t.name in known else t for t in layout.tensors
        ),
    )


def _with_axes(tensor: StoredTensor, weight: Weight, part: Part) -> StoredTensor:
    if part.name != part.matrix:
        columns = (part.first, part.stop)
        return replace(tensor, dims=weight.dims, order=weight.order, source=part.matrix, columns=columns)
    plain = weight.dims == weight.shape and weight.order == (0, 1)
    return tensor if plain else replace(tensor, dims=weight.dims, order=weight.order)
