"""The vendor's compiler: its version, and whether markers of a small model, compiled by it, show where weights are stored."""

from __future__ import annotations

import tempfile
from pathlib import Path

from layouts.sidecar import write_layout
from pipeline.checkpoint.open import open_checkpoint
from pipeline.engineset.names import layout_file
from pipeline.environment import variable
from pipeline.errors import ToolchainError
from pipeline.hardware.sections import Absent, Findings
from pipeline.model import ModelConfig
from pipeline.toolchain.decode_files import Decoded, decode_marker_files
from pipeline.toolchain.local_tool import LocalTool
from pipeline.toolchain.marker_files import ENGINES, write_marker_files
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.pulsar2 import LOG_FILE, Pulsar2, find_pulsar2
from pipeline.toolchain.pulsar2_command import HOME

SMALL = ModelConfig(
    architecture="qwen3",
    hidden_size=1024,
    num_hidden_layers=1,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=3072,
    vocab_size=4096,
    rms_norm_eps=1e-6,
    rope_theta=1e6,
    tie_word_embeddings=False,
    max_position_embeddings=4096,
    bos_token_id=None,
    eos_token_ids=(),
)
"""One layer of the widths of Qwen3-0.6B, the model of which most is published."""
SMALL_OPTIONS = CompileOptions(kv_cache_len=1023, prefill_len=128, last_kv_cache_len=(128,))
_LOG_CHARACTERS = 200_000


def describe_compiler(found: Findings, tool: LocalTool) -> None:
    """Its version, and how it is named. Raises Absent where it is not, and what `find_pulsar2` does."""
    if not tool.command and not variable(HOME):
        raise Absent(f"neither {HOME} nor a command")
    found.data["named_by"] = "command" if tool.command else HOME
    found.data["version"] = find_pulsar2(tool).version


def describe_markers(found: Findings, tool: LocalTool, model: ModelConfig, options: CompileOptions) -> None:
    """Compile every marker build of a model, decode the layouts and confirm them.

    Raises Absent without a compiler; EngineSetError: whatever compiler or decoder say. Log and layouts stay in `found`.
    """
    if not tool.command and not variable(HOME):
        raise Absent("no compiler")
    compiler = find_pulsar2(tool)
    with tempfile.TemporaryDirectory(prefix="engineset-") as scratch:
        directory = Path(scratch) / "markers"
        written = write_marker_files(model, options, directory)
        found.data |= {"weight_type": options.weight_type, "builds": len(written.builds), "compiled": 0}
        for number, build in enumerate(written.builds):
            _compile(found, compiler, directory / build.directory / ENGINES, options)
            found.data["compiled"] = number + 1
        for decoded in decode_marker_files(directory):
            _record(found, decoded, Path(scratch))


def _compile(found: Findings, compiler: Pulsar2, engines: Path, options: CompileOptions) -> None:
    log = engines / LOG_FILE
    try:
        files = compiler.compile(open_checkpoint(engines.parent), engines, options)
    except ToolchainError as error:
        log = Path(error.file or "")
        raise
    finally:
        if log.name == LOG_FILE and log.is_file():
            found.texts[LOG_FILE] = log.read_text("utf-8", "replace")[-_LOG_CHARACTERS:]
    found.data["files"] = {path.name: path.stat().st_size for path in files}


def _record(found: Findings, decoded: Decoded, scratch: Path) -> None:
    layout = decoded.layout
    path = scratch / layout_file(layout.kind)
    write_layout(path, layout)
    found.texts[path.name] = path.read_text()
    found.data[layout.kind] = {
        "blob": layout.blob,
        "blob_bytes": layout.blob_bytes,
        "tensors": {stored.name: stored.codec for stored in layout.tensors},
        "copies": {stored.name: [copy.name for copy in stored.copies] for stored in layout.tensors},
        "corrected": sum(decoded.corrected.values()),
    }
