"""File names of an engine set: those of a vendor model directory (axclrt facts, section 6), and our own beside them."""

from __future__ import annotations

from pipeline.model import ModelConfig
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, KINDS, LAYER, POST_ENGINE

EMBEDDING_FILE = "model.embed_tokens.weight.bfloat16.bin"
CONFIG_FILE = "config.json"
POST_CONFIG_FILE = "post_config.json"
MANIFEST_FILE = "manifest.json"
VOCAB_KEEP_FILE = "vocab_keep.json"


def layer_pattern(config: ModelConfig, prefill_len: int) -> str:
    """With `%d` for the layer, as `config.json` names it."""
    return f"{config.architecture}_p{prefill_len}_l%d_together.axmodel"


def layer_file(config: ModelConfig, prefill_len: int, layer: int) -> str:
    return layer_pattern(config, prefill_len) % layer


def post_file(config: ModelConfig) -> str:
    return f"{config.architecture}_post.axmodel"


def engine_file(config: ModelConfig, prefill_len: int, kind: str, layer: int = 0) -> str:
    """The file of an engine by its kind."""
    if kind == LAYER:
        return layer_file(config, prefill_len, layer)
    return {POST_ENGINE: post_file(config), EMBEDDING_ENGINE: EMBEDDING_FILE}[kind]


def layout_file(kind: str) -> str:
    """The layout sidecar of a kind of engine."""
    return f"{kind}.layout.toml"


LAYOUT_FILES = tuple(layout_file(kind) for kind in KINDS)
AXL4_FILE = "layout_v4.bin"
