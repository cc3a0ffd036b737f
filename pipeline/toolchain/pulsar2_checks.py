"""What is asked before the vendor's compiler is started, which takes its time and fails without a word.

Need of memory, a rule of ours and not measured: 1 GiB, all weights once as float32, and four times as float32 the head and every
layer that is compiled at the same time. Of disk: three times all weights as float32, and once more where they have to be written.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from pipeline.checkpoint.slots import stored_shapes
from pipeline.environment import cores, memory
from pipeline.errors import ToolchainError
from pipeline.model import ModelConfig
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.pulsar2_command import OLDEST, POST_TYPES, WEIGHT_TYPES, version_pair
from pipeline.toolchain.pulsar2_source import FLOAT_BYTES, float_bytes

MOST_PARALLEL = 8
_DEFAULTS = CompileOptions()
# what the vendor's compiler decides by itself, and the reference compiler is told
_OURS = ("layout_seed", "rounding", "scale_rule", "scale_type", "fold_norms", "prefill_share", "corrections")
_BASE = 1 << 30
_COPIES = 4
_DISK_COPIES = 3


def check_request(version: str, config: ModelConfig, options: CompileOptions) -> None:
    """Refuses, with ToolchainError, what the compiler is known not to do."""
    if version_pair(version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ToolchainError("this Pulsar2 is too old", where="version", expected=f"{oldest} or later", found=version)
    for where, value, known in (
        ("weight_type", options.weight_type, WEIGHT_TYPES),
        ("post_weight_type", options.post_type, POST_TYPES),
    ):
        if value not in known:
            raise ToolchainError("Pulsar2 does not compile it", where=where, expected=" | ".join(known), found=value)
    for where in _OURS:
        value, default = getattr(options, where), getattr(_DEFAULTS, where)
        if value != default:
            raise ToolchainError("no flag of Pulsar2's", where=where, expected=default, found=value)
    if config.kept_rows:
        raise ToolchainError("Pulsar2 cannot trim a head", where="vocab_keep", found=f"{config.kept_rows} rows")


def check_free_way(output: Path) -> None:
    """Refuses an output directory with anything in it."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ToolchainError("the output is there already and is not an empty directory", file=output)


def memory_need(config: ModelConfig, parallel: int) -> int:
    """Bytes, by the rule above."""
    shapes = stored_shapes(config)
    layers = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("model.layers."))
    head = config.vocab_size * config.hidden_size
    worked_on = parallel * layers // config.num_hidden_layers + head
    return _BASE + float_bytes(config) + _COPIES * FLOAT_BYTES * worked_on


def choose_parallel(config: ModelConfig) -> int:
    """How many layers are compiled at a time: as many as there are processors and memory for, at most eight.

    Raises ToolchainError where there is not the memory for one.
    """
    available = memory().get("MemAvailable")
    wanted = min(MOST_PARALLEL, cores(), config.num_hidden_layers)
    if available is None:
        return wanted
    for parallel in range(wanted, 0, -1):
        if memory_need(config, parallel) <= available:
            return parallel
    reason = "not enough memory, and the compiler would be killed without a word"
    need = f"{_gib(memory_need(config, 1))} available"
    raise ToolchainError(reason, where="memory", expected=need, found=_gib(available))


def check_disk(directory: Path, config: ModelConfig, written: bool) -> None:
    """Refuses, with ToolchainError, a disk on which the engines, and the weights where they are written, do not fit."""
    need = (_DISK_COPIES + written) * float_bytes(config)
    free = shutil.disk_usage(directory).free
    if free < need:
        raise ToolchainError("not enough disk space", file=directory, expected=f"{_gib(need)} free", found=_gib(free))


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
