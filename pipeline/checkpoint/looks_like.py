"""What a file that is not what it should be seems to be, for error lines."""

from __future__ import annotations

_BEGINNINGS = (
    (b"version https://git-lfs", "a Git LFS pointer (the real file was not fetched)"),
    (b"<!doctype", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"<?xml", "an XML document"),
    (b"gguf", "a GGUF"),
    (b"lmgg", "a GGML file from before GGUF"),
    (b"tjgg", "a GGML file from before GGUF"),
    (b"fmgg", "a GGML file from before GGUF"),
    (b"pk\x03\x04", "a zip archive, such as a PyTorch checkpoint"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"{", "JSON"),
)


def looks_like(start: bytes) -> str:
    """A few words on the file whose first bytes these are (64 or more, if it has them)."""
    if not start:
        return "an empty file"
    text = start.lstrip().lower()
    for beginning, name in _BEGINNINGS:
        if text.startswith(beginning):
            return name
    if start[8:10] == b'{"':
        return "a safetensors file"
    if not any(start):
        return "zeros"
    if text.isascii() and text.decode("ascii").replace("\n", " ").replace("\r", " ").replace("\t", " ").isprintable():
        return "text"
    return f"bytes {start[:4].hex(' ')}"
