"""The flags of the vendor's LLM compiler that templates depend on, under the vendor's names."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from layouts.scales import Scales
from pipeline.errors import ToolchainError
from pipeline.toolchain.kinds import LAYER, POST_ENGINE

REFERENCE_VERSION = "7.0"
FLOATS = ("bf16", "fp32")
INTEGERS = ("s8", "s4")
SCALE_RULES = ("row/127", "row/127.5", "group/127", "group/127.5")
SCALE_TYPES = ("bf16", "fp16")
S8_GROUP, S4_GROUP = 256, 128
CHIPS = ("AX650", "AX620E", "LAMBERT")
ROUNDINGS = ("nearest", "truncate")


@dataclass(frozen=True)
class CompileOptions:
    """What an engine is compiled for, besides the model's dimensions.

    kv_cache_len : rows of the decode cache (T)
    prefill_len : tokens of a prefill call
    last_kv_cache_len : prefixes of the prefill ladder besides 0; empty means every multiple of `prefill_len` that fits
    weight_type : of the layers' matrices; vectors are bf16 in integer engines
    post_weight_type : of the head; "" is `weight_type` for floats and bf16 for integers
    layout_seed, rounding : reference compiler only: the memory map's seed, and how float32 becomes bf16
    scale_rule : s8: what the largest magnitude is taken over and divided by; s4 is always group/7
    scale_type : s4: how a scale is stored
    fold_norms : multiply the gains of norms into the integer projections behind them, as the vendor's 7.0 does
    prefill_share : reference compiler only: part of a matrix that layout seed 0 stores a second time for prefill
    corrections : reference compiler only, s8: expected number of one-step corrections in a row
    """

    weight_type: str = "bf16"
    kv_cache_len: int = 1024
    prefill_len: int = 128
    last_kv_cache_len: tuple[int, ...] = ()
    chip: str = "AX650"
    layout_seed: int = 0
    rounding: str = "nearest"
    post_weight_type: str = ""
    scale_rule: str = SCALE_RULES[0]
    scale_type: str = SCALE_TYPES[0]
    fold_norms: bool = False
    prefill_share: float = 0.4
    corrections: float = 0.3

    def __post_init__(self) -> None:
        _one_of("weight_type", self.weight_type, FLOATS + INTEGERS)
        posts = FLOATS + INTEGERS if self.weight_type in INTEGERS else (self.weight_type,)
        _one_of("post_weight_type", self.post_weight_type, ("", *posts))
        _one_of("scale_rule", self.scale_rule, SCALE_RULES)
        _one_of("scale_type", self.scale_type, SCALE_TYPES)
        if self.fold_norms and self.weight_type in FLOATS:
            raise ToolchainError("only integer engines fold norms", where="fold_norms", found=self.weight_type)
        for where, share in (("prefill_share", self.prefill_share), ("corrections", self.corrections)):
            if not 0 <= share <= 1:
                raise ToolchainError("out of range", where=where, expected="0 to 1", found=share)
        _one_of("chip", self.chip, CHIPS)
        _one_of("rounding", self.rounding, ROUNDINGS if self.weight_type == "bf16" else ROUNDINGS[:1])
        if not 1 <= self.prefill_len <= self.kv_cache_len <= 1 << 20:
            raise ToolchainError(
                "the cache must hold a prefill chunk",
                where="prefill_len, kv_cache_len",
                expected="1 <= prefill_len <= kv_cache_len <= 1048576",
                found=f"{self.prefill_len}, {self.kv_cache_len}",
            )
        for prefix in self.last_kv_cache_len:
            if prefix < 0 or prefix + self.prefill_len > self.kv_cache_len:
                limit = self.kv_cache_len - self.prefill_len
                raise ToolchainError(
                    "a prefill prefix that does not fit the cache",
                    where="last_kv_cache_len",
                    expected=f"0..{limit}",
                    found=prefix,
                )

    @property
    def post_type(self) -> str:
        """The weight type of the head."""
        return self.post_weight_type or (self.weight_type if self.weight_type in FLOATS else "bf16")

    def scales(self, weight_type: str) -> Scales | None:
        """How integers of this type are scaled; None for floats."""
        if weight_type in FLOATS:
            return None
        if weight_type == "s4":
            return Scales(self.scale_type, S4_GROUP, 7.0, shared=False)
        over, divisor = self.scale_rule.split("/")
        return Scales("reciprocal", S8_GROUP, float(divisor), shared=over == "row")

    def folds(self, kind: str) -> bool:
        """Whether the engines of this kind have norms folded into their projections."""
        return self.fold_norms and (kind == LAYER or (kind == POST_ENGINE and self.post_type in INTEGERS))

    def ladder(self) -> list[int]:
        """Prefixes of the prefill groups, ascending, 0 first."""
        if self.last_kv_cache_len:
            return sorted({0, *self.last_kv_cache_len})
        return list(range(0, self.kv_cache_len - self.prefill_len + 1, self.prefill_len))

    def positions(self) -> int:
        """Rows of the RoPE tables: every position that a call can name."""
        return max(self.kv_cache_len + 1, self.ladder()[-1] + self.prefill_len)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _one_of(where: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ToolchainError("not supported here", where=where, expected=" or ".join(filter(None, known)), found=value)
