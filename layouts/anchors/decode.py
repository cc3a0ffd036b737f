"""From a blob and the weights that it was compiled from to every tensor's places (docs/anchors.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from layouts.anchors.assemble import Beside, assemble
from layouts.anchors.beside import bias_beside, scales_beside
from layouts.anchors.claims import Claims
from layouts.anchors.pick import Form, Weight, pick_forms
from layouts.anchors.place import Counts, Placed, place
from layouts.anchors.scan import Bytes
from layouts.codecs import Float32
from layouts.errors import DecodeRefused, FitRefused, LayoutError
from layouts.tensors import StoredTensor

FORMS_TRIED = 3
MOST_WRONG = 0.25


@dataclass
class Finding:
    """What became of one tensor of the checkpoint.

    stored : its places, None where it has no layout that explains it
    beside : name of the tensor beside whose integers this one is kept as bias entries, "" for none
    reason : why there is no layout
    """

    name: str
    dims: tuple[int, ...]
    counts: Counts = field(default_factory=Counts)
    stored: StoredTensor | None = None
    beside: str = ""
    reason: str = ""
    codec: str = ""


def decode_blob(blob: Bytes, weights: Sequence[Weight], names: Sequence[str]) -> list[Finding]:
    """Find every weight in a blob.

    Parameters
    ----------
    names : of copies, the complete one first

    Returns
    -------
    one finding for each weight, in the order given
    """
    claims = Claims(blob.size)
    forms = pick_forms(blob, weights)
    findings = {weight.name: Finding(weight.name, weight.array.shape) for weight in weights}
    matrices = [weight for weight in weights if weight.array.ndim > 1]
    vectors = {weight.name: weight.array for weight in weights if weight.array.ndim == 1}
    placed = [
        found
        for weight in sorted(matrices, key=lambda weight: _rank(weight, forms))
        if (found := _place(blob, weight, forms.get(weight.name, []), claims, findings[weight.name])) is not None
    ]
    for found in placed:
        _finish(blob, found, vectors, claims, names, findings)
    for weight in weights:
        if weight.array.ndim == 1 and not findings[weight.name].beside:
            alone = _place(blob, weight, forms.get(weight.name, []), claims, findings[weight.name])
            if alone is not None:
                _finish(blob, alone, {}, claims, names, findings)
    return [findings[weight.name] for weight in weights]


def _rank(weight: Weight, forms: dict[str, list[Form]]) -> tuple[int, int]:
    """Wide floats say most, large tensors come before small ones."""
    own = forms.get(weight.name)
    return -(own[0].arrangement.planes[0][1] if own else 0), -weight.array.size


def _place(blob: Bytes, weight: Weight, forms: list[Form], claims: Claims, finding: Finding) -> Placed | None:
    """Places under the first form that explains every element, or under the one that explains most."""
    best: tuple[Placed, Claims] | None = None
    for form in forms[:FORMS_TRIED]:
        tried = claims.copy()
        try:
            found = place(blob, weight, form, tried)
        except (FitRefused, DecodeRefused, LayoutError) as error:
            finding.reason = finding.reason or str(error)
            continue
        if found is not None and (best is None or _wrong(found) < _wrong(best[0])):
            best = found, tried
        if best is not None and _wrong(best[0]) == (0, 0):
            break
    if best is None or best[0].counts.unexplained > MOST_WRONG * weight.array.size:
        finding.reason = finding.reason or "not found"
        return None
    claims.become(best[1])
    finding.counts, finding.codec = best[0].counts, best[0].form.arrangement.codec
    return best[0]


def _wrong(found: Placed) -> tuple[int, int]:
    """Elements that are something else, then those that are nowhere: under a wrong rule lines are not found."""
    return found.counts.unexplained, found.counts.absent


def _finish(
    blob: Bytes,
    found: Placed,
    vectors: dict[str, Float32],
    claims: Claims,
    names: Sequence[str],
    findings: dict[str, Finding],
) -> None:
    """Entries, then the whole tensor; what keeps it from a layout is its reason."""
    finding = findings[found.weight.name]
    if found.counts.unexplained:
        finding.reason = f"{found.counts.unexplained} elements are not what was expected"
        return
    beside = Beside()
    try:
        if found.form.rule is not None:
            scales = scales_beside(blob, found, claims)
            if scales is None:
                finding.reason = "scale entries are nowhere"
                return
            free = {name: vector for name, vector in vectors.items() if len(vector) == len(found.raw)}
            free = {name: vector for name, vector in free.items() if not findings[name].beside}
            beside = bias_beside(blob, found, scales, free, claims)
        finding.stored = assemble(found, beside, names)
    except LayoutError as error:
        finding.reason = str(error)
        return
    if finding.stored.bias is not None and finding.stored.bias.tensor:
        bias = findings[finding.stored.bias.tensor]
        bias.beside, bias.codec = finding.name, finding.stored.bias.entry
        bias.counts = Counts(stored=int(np.prod(bias.dims)))
