"""File names of an engine set: those of a vendor model directory (axclrt facts, section 6), and our own beside them."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.model import ModelConfig
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, KINDS, LAYER, POST_ENGINE

EMBEDDING_FILE = "model.embed_tokens.weight.bfloat16.bin"
CONFIG_FILE = "config.json"
POST_CONFIG_FILE = "post_config.json"
MANIFEST_FILE = "manifest.json"
VOCAB_KEEP_FILE = "vocab_keep.json"


@dataclass(frozen=True)
class EngineNames:
    """What the engines of one directory are called; `layer` has `%d` where the number of the layer goes."""

    layer: str
    post: str
    embedding: str = EMBEDDING_FILE

    def file(self, kind: str, layer: int = 0) -> str:
        """The file of an engine by its kind."""
        if kind == LAYER:
            return self.layer.replace("%d", str(layer))
        return {POST_ENGINE: self.post, EMBEDDING_ENGINE: self.embedding}[kind]


def engine_names(config: ModelConfig, prefill_len: int) -> EngineNames:
    """The names that a compiler gives: the family before, the length of a prefill call behind."""
    family = config.architecture
    return EngineNames(f"{family}_p{prefill_len}_l%d_together.axmodel", f"{family}_post.axmodel")


def engine_file(config: ModelConfig, prefill_len: int, kind: str, layer: int = 0) -> str:
    """The file that a compiler writes for an engine."""
    return engine_names(config, prefill_len).file(kind, layer)


def layout_file(kind: str) -> str:
    """The layout sidecar of a kind of engine."""
    return f"{kind}.layout.toml"


LAYOUT_FILES = tuple(layout_file(kind) for kind in KINDS)
AXL4_FILE = "layout_v4.bin"
