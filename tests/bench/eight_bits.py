"""The model as llama.cpp's own 8 bits a weight."""

from __future__ import annotations

from pathlib import Path

import gguf
import libgguf

ARCHITECTURE = "general.architecture"


def write_eight_bits(twin: Path, path: Path) -> Path:
    """Write an F32 GGUF anew with every matrix as Q8_0, unless it is there already."""
    if path.is_file():
        return path
    reader, kind = gguf.GGUFReader(twin), gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(path, reader.fields[ARCHITECTURE].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != ARCHITECTURE:
            writer.add_key_value(name, field.contents(), field.types[0], field.types[-1])
    for tensor in reader.tensors:
        if tensor.data.ndim == 1:
            writer.add_tensor(tensor.name, tensor.data)
        else:
            writer.add_tensor(tensor.name, libgguf.quantize_rows(tensor.data, int(kind)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
