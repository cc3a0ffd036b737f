"""How an integer matrix is scaled, told by the confirming build: over rows or groups, with a gain folded in or not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from layouts.compare import Bytes, ReadWeight, row_ranges
from layouts.digits import Int64
from layouts.encoding import Encoded, encode_rows
from layouts.entry_codecs import entry_codec
from layouts.errors import DecodeRefused, LayoutError
from layouts.stored import StoredTensor
from layouts.view import read_encoded

SAMPLED_ROWS = 64
MOST_APART = 8
"""At most one element in so many of the first rows differs from what the true rule makes of the weights."""


@dataclass(frozen=True)
class Rule:
    """`shared` is None where it makes no difference, as in rows of one group; s4 is never shared."""

    shared: bool | None
    folded: str


def with_rule(stored: StoredTensor, rule: Rule) -> StoredTensor:
    if stored.scales is None:
        raise LayoutError("only integers are scaled", where=stored.name)
    return replace(stored, scales=replace(stored.scales, shared=rule.shared is not False), folded=rule.folded)


def folded_values(
    known: ReadWeight, name: str, gain: str, rows: slice
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Rows of a weight, times a gain ("" for none), rounded to float32."""
    values = known(name, rows)
    return values * known(gain, slice(0, 1)) if gain else values


def find_rule(stored: StoredTensor, gain: str, confirming: Bytes, known: ReadWeight) -> Rule:
    """The rule under which the fewest integers of the first rows differ from the stored ones.

    Parameters
    ----------
    stored : placed, with any rule
    gain : the norm that may be folded into it, "" for none
    known : plain weights of the confirming build

    Raises DecodeRefused where none fits.
    """
    rows = slice(0, min(SAMPLED_ROWS, stored.shape[0]))
    found = read_encoded(confirming, stored, rows=rows).raw
    apart = {}
    for shared, folded in product(_shares(stored), ("", gain) if gain else ("",)):
        expected = _encoded(with_rule(stored, Rule(shared, folded)), known, rows)
        apart[shared, folded] = found.size if expected is None else int(np.count_nonzero(found != expected.raw))
    least = min(apart.values())
    if least > found.size // MOST_APART:
        raise DecodeRefused("no scale rule explains the confirming build", where=stored.name)
    best = [rule for rule, count in apart.items() if count == least]
    return Rule(best[0][0] if len({shared for shared, _ in best}) == 1 else None, best[0][1])


def _shares(stored: StoredTensor) -> tuple[bool | None, ...]:
    if stored.codec == "s4":
        return (False,)
    return (True, False) if stored.scales is not None and stored.scales.groups(stored.shape[1]) > 1 else (None,)


def _encoded(stored: StoredTensor, known: ReadWeight, rows: slice) -> Encoded | None:
    try:
        return encode_rows(stored, folded_values(known, stored.name, stored.folded, rows))
    except LayoutError:
        return None


def group_order(stored: StoredTensor, table: Int64, confirming: Bytes, known: ReadWeight) -> Int64:
    """Which place of a row is which group's: entries of groups of their own are told apart by their values.

    Parameters
    ----------
    table : bytes of entries, `[rows, groups]`, ascending in each row, -1 in rows that this copy lacks

    Returns
    -------
    index of the place of each group, `[groups]`

    Raises DecodeRefused where no order explains all rows, or more than one does.
    """
    width = entry_codec(stored.scales.entry).width // 8 if stored.scales is not None else 0
    groups = table.shape[1]
    matches = np.ones((groups, groups), bool)
    for rows in row_ranges(stored.shape):
        encoded = encode_rows(stored, folded_values(known, stored.name, stored.folded, rows))
        held = table[rows, 0] >= 0
        if encoded.entries is None or not held.any():
            continue
        places = table[rows][held]
        words = sum(confirming[places + byte].astype(np.uint32) << np.uint32(8 * byte) for byte in range(width))
        expected = encoded.entries[held].astype(np.uint32)
        matches &= (np.asarray(words)[:, :, None] == expected[:, None, :]).all(axis=0)
    if not (matches.any(axis=0) & matches.any(axis=1)).all():
        raise DecodeRefused("no order of scale entries explains the confirming build", where=stored.name)
    if np.count_nonzero(matches) > groups:
        raise DecodeRefused("scale entries that the confirming build does not tell apart", where=stored.name)
    order: Int64 = matches.argmax(axis=0)
    return order
