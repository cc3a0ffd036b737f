"""Sets of tiny models in integer engines, and the same weights compiled directly: by the commands alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tomli_w
from safetensors.numpy import save_file

from pipeline.checkpoint.noise import write_hf_directory
from pipeline.checkpoint.slots import model_slots
from pipeline.model import ModelConfig
from tests.helpers.sets import Tiny, engineset
from tests.helpers.tiny import Float32, gguf_order, tiny_config, tiny_weights, write_gguf

S8 = {"weight_type": "s8", "post_weight_type": "s8"}
S4 = {"weight_type": "s4", "post_weight_type": "s4"}
SMALL: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 70, "num_attention_heads": 2}
FLAGS = {"kv_cache_len": 16, "prefill_len": 8}


def small_config(arch: str = "llama", **sizes: Any) -> ModelConfig:
    """A model that is marked, compiled and patched in seconds."""
    return tiny_config(arch, **(SMALL | {"head_dim": 32} | sizes))


def write_source(path: Path, config: ModelConfig, weights: dict[str, Float32], qtype: str = "F32") -> Path:
    """A GGUF where the path ends so, else a Hugging Face directory."""
    if path.suffix == ".gguf":
        write_gguf(path, config, weights, qtype)
    else:
        write_hf_directory(path, config, weights.items(), "F32")
    return path


def make_set(folder: Path, config: ModelConfig, seed: int, top: dict[str, Any] | None = None, **templates: Any) -> Tiny:
    """A source of seeded weights and the config of a set named `tiny`, not built."""
    folder.mkdir(parents=True, exist_ok=True)
    tiny = Tiny(folder)
    write_source(tiny.gguf, config, tiny_weights(config, seed))
    configure(tiny, config.architecture, top, **templates)
    return tiny


def configure(tiny: Tiny, arch: str, top: dict[str, Any] | None = None, **templates: Any) -> None:
    """Write the config anew."""
    flags = {} if "dir" in templates else FLAGS
    content = {"name": "tiny", "architecture": arch, "source": {"path": "tiny.gguf"}} | (top or {})
    tiny.config.write_text(tomli_w.dumps(content | {"templates": flags | templates}))


def compile_directly(source: Path, output: Path, **flags: Any) -> dict[str, bytes]:
    """The compiler's engines of a checkpoint: file name -> bytes."""
    given = FLAGS | flags
    seed, types = given.pop("layout_seed", 0), ("-w", given.pop("weight_type"))
    words = [word for key, value in given.items() for word in ([f"--{key}"] if value is True else [f"--{key}", value])]
    paths = ("--input_path", source, "--output_path", output)
    done = engineset("llm-build", *paths, *types, "--layout-seed", seed, *words)
    assert done.returncode == 0, done.stderr
    return engine_bytes(output)


def engine_bytes(directory: Path) -> dict[str, bytes]:
    """Engines and embedding of a directory."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in (".axmodel", ".bin")}


def low_rank(config: ModelConfig, names: list[str], seed: int, rank: int = 3) -> dict[str, tuple[Float32, Float32]]:
    """HF name -> (A `[rank, cols]`, B `[rows, rank]`)."""
    random = np.random.default_rng(seed)
    shapes = {name: values.shape for name, values in tiny_weights(config, 0).items()}
    return {
        name: (
            random.standard_normal((rank, shapes[name][1]), np.float32) / 8,
            random.standard_normal((shapes[name][0], rank), np.float32) / 8,
        )
        for name in names
    }


def merged(
    weights: dict[str, Float32], factors: dict[str, tuple[Float32, Float32]], scale: float
) -> dict[str, Float32]:
    """W + scale * B A, summed in float64 and rounded once."""
    changed = dict(weights)
    for name, (a, b) in factors.items():
        product = b.astype(np.float64) @ a.astype(np.float64)
        changed[name] = (weights[name].astype(np.float64) + float(np.float32(scale)) * product).astype(np.float32)
    return changed


def write_peft(directory: Path, factors: dict[str, tuple[Float32, Float32]], alpha: float) -> Path:
    """A PEFT directory."""
    directory.mkdir()
    tensors = {}
    for name, (a, b) in factors.items():
        module = f"base_model.model.{name.removesuffix('.weight')}"
        tensors |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": np.ascontiguousarray(b)}
    save_file(tensors, directory / "adapter_model.safetensors")
    rank = len(next(iter(factors.values()))[0])
    modules = sorted({name.split(".")[-2] for name in factors})
    fields = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha, "target_modules": modules}
    fields |= {"bias": "none", "fan_in_fan_out": False, "lora_dropout": 0.0, "base_model_name_or_path": "base"}
    (directory / "adapter_config.json").write_text(json.dumps(fields))
    return directory


def write_adapter_gguf(
    path: Path, config: ModelConfig, factors: dict[str, tuple[Float32, Float32]], alpha: float
) -> Path:
    """The GGUF that llama.cpp's converter makes of it: rows of B in the order of the base model's."""
    writer = gguf.GGUFWriter(path, config.architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    slots = {slot.name: slot for slot in model_slots(config)}
    for name, (a, b) in factors.items():
        writer.add_tensor(f"{slots[name].gguf}.lora_a", a)
        writer.add_tensor(f"{slots[name].gguf}.lora_b", gguf_order(b, slots[name], config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
