"""The flags of the vendor's LLM compiler that templates depend on, under the vendor's names."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pipeline.errors import ToolchainError

REFERENCE_VERSION = "7.0"
WEIGHT_TYPES = ("bf16", "fp32")
CHIPS = ("AX650", "AX620E", "LAMBERT")
ROUNDINGS = ("nearest", "truncate")


@dataclass(frozen=True)
class CompileOptions:
    """What an engine is compiled for, besides the model's dimensions.

    kv_cache_len : rows of the decode cache (T)
    prefill_len : tokens of a prefill call
    last_kv_cache_len : prefixes of the prefill ladder besides 0; empty means every multiple of `prefill_len` that fits
    layout_seed, rounding : reference compiler only: the memory map's seed, and how float32 becomes bf16
    """

    weight_type: str = "bf16"
    kv_cache_len: int = 1024
    prefill_len: int = 128
    last_kv_cache_len: tuple[int, ...] = ()
    chip: str = "AX650"
    layout_seed: int = 0
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        _one_of("weight_type", self.weight_type, WEIGHT_TYPES)
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
        raise ToolchainError("not supported here", where=where, expected=" or ".join(known), found=value)
