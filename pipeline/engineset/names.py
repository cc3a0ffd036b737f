"""File names of a vendor model directory (axclrt facts, section 6)."""

from __future__ import annotations

from pipeline.model import ModelConfig

EMBEDDING_FILE = "model.embed_tokens.weight.bfloat16.bin"
CONFIG_FILE = "config.json"
POST_CONFIG_FILE = "post_config.json"
MANIFEST_FILE = "manifest.json"
TOKENIZER_FILE = "tokenizer.json"


def layer_pattern(config: ModelConfig, prefill_len: int) -> str:
    """With `%d` for the layer, as `config.json` names it."""
    return f"{config.architecture}_p{prefill_len}_l%d_together.axmodel"


def layer_file(config: ModelConfig, prefill_len: int, layer: int) -> str:
    return layer_pattern(config, prefill_len) % layer


def post_file(config: ModelConfig) -> str:
    return f"{config.architecture}_post.axmodel"
