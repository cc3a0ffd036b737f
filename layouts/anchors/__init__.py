"""Layouts from one engine and the weights that it was compiled from, without a compiler (docs/anchors.md)."""
