"""How a compiler may have stored a tensor: codecs, planes and their order of nibbles, scale rules, orders of axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from layouts.anchors.scan import Fields, Window
from layouts.codecs import CODECS, Float32, codec
from layouts.integers import INTEGERS, Int8, integer_codec
from layouts.quantize import quantize, refit_scales
from layouts.scales import Scales

PlaneBits = tuple[int, int, int]
"""Lowest bit, bits, bias."""

VENDOR_ZERO = 1e-10
DIVISORS = {"s8": (127.0, 127.5, 128.0), "s4": (7.0, 7.5, 8.0)}
HELD = ("fp32", "bf16", "fp16")
"""Scale entries that round a scale each in its own way; those of `reciprocal` hold the scale as bf16."""
GROUPS = (32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Arrangement:
    """A codec, its planes (the one with the lowest bits first), and which nibble of a byte comes first."""

    codec: str
    planes: tuple[PlaneBits, ...]
    high_first: bool = False

    def window(self, plane: int) -> Window:
        bits = self.planes[plane][1]
        return Window(bits, bits, self.high_first)

    def fields(self, raw: Fields, plane: int) -> Fields:
        """What a plane stores for stored integers."""
        low, bits, bias = self.planes[plane]
        if bits == raw.dtype.itemsize * 8:
            whole: Fields = raw + raw.dtype.type(bias)
            return whole
        mask = raw.dtype.type((1 << bits) - 1)
        fields: Fields = (((raw >> raw.dtype.type(low)) & mask) + raw.dtype.type(bias)) & mask
        return fields


def float_arrangements() -> list[Arrangement]:
    """Every registered float codec."""
    return [
        Arrangement(name, ((0, kind.width, 0),)) for name, kind in sorted(CODECS.items(), key=lambda k: -k[1].width)
    ]


def integer_arrangements(name: str) -> list[Arrangement]:
    """Plain and offset integers, and nibbles: of 4 bits themselves, of 8 as two planes."""
    half = INTEGERS[name].width
    if half == 4:
        return [Arrangement(name, ((0, 4, bias),), high) for high, bias in product((False, True), (8, 0))]
    nibbles = [Arrangement(name, ((0, 4, 0), (4, 4, bias)), high) for high, bias in product((False, True), (8, 0))]
    return [Arrangement(name, ((0, 8, 0),)), Arrangement(name, ((0, 8, 128),)), *nibbles]


def integer_rules(name: str, cols: int) -> Iterator[Scales]:
    """Scale rules of a row, then of groups of its columns."""
    for group in (cols, *(group for group in GROUPS if group < cols)):
        for divisor, entry in product(DIVISORS[name], HELD):
            zero = VENDOR_ZERO if entry == "fp32" else 1.0
            yield Scales(entry, group, divisor, group == cols, zero=zero)


def integers(values: Float32, rule: Scales, name: str) -> Int8:
    """Stored integers of whole rows under a rule."""
    kind = integer_codec(name)
    return quantize(values, refit_scales(values, rule, kind), rule, kind)[0]


def float_raw(values: Float32, name: str) -> Fields:
    return codec(name).encode(np.ascontiguousarray(values))


def axis_orders(dims: tuple[int, ...], row_axes: int) -> list[tuple[int, ...]]:
    """Orders of the axes of an array: one of the first `row_axes` axes of more than one element gives the rows, each other
    one may be the fastest of the columns; axes of one element follow the row axis."""
    wide = [axis for axis, n in enumerate(dims) if n > 1]
    single = [axis for axis, n in enumerate(dims) if n == 1]
    if not wide:
        return [tuple(range(len(dims)))]
    orders = []
    for row in (wide if len(wide) > 1 else [single[0], *wide] if single and single[0] < wide[0] else wide)[:row_axes]:
        rest = [axis for axis in wide if axis != row]
        for last in [rest[-1:], *([axis] for axis in rest[:-1])]:
            orders.append((row, *(a for a in single if a != row), *(a for a in rest if a not in last), *last))
    return orders
