"""The kinds of file in a template set: each has one layout."""

LAYER, POST_ENGINE, EMBEDDING_ENGINE = "layer", "post", "embedding"
KINDS = (LAYER, POST_ENGINE, EMBEDDING_ENGINE)

MODEL = "model"
"""A whole network: one engine, no set."""
