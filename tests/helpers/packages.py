"""Finished vendor directories: the reference compiler's engines under a vendor's names, without anything of ours beside them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from pipeline.checkpoint.open import open_checkpoint
from pipeline.engineset.names import EMBEDDING_FILE, engine_names
from pipeline.model import ModelConfig
from pipeline.toolchain.compilers import compile_published
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.template_file import TEMPLATE_FILE
from tests.helpers.integer_sets import write_source
from tests.helpers.sets import Tiny
from tests.helpers.tiny import tiny_weights

PREFIX, TOKENIZER = "vendor7b", "vendor_tokenizer.txt"
LENGTHS = {"kv_cache_len": 24, "prefill_len": 8}


@dataclass(frozen=True)
class VendorSet(Tiny):
    """A package, the checkpoint that it was built from, a GGUF of other weights, and the config of a set named `tiny`."""

    @property
    def package(self) -> Path:
        return self.folder / "package"

    @property
    def base(self) -> Path:
        return self.folder / "base"

    @property
    def fields(self) -> dict[str, Any]:
        """The package's `config.json`."""
        fields: dict[str, Any] = json.loads((self.package / "config.json").read_text())
        return fields

    def configure(self, **top: Any) -> None:
        """Write the config anew; `top` are keys beside its name."""
        architecture = json.loads((self.base / "config.json").read_text())["model_type"].removesuffix("_text")
        content = {"name": "tiny", "architecture": architecture, **top, "source": {"path": "tiny.gguf"}}
        templates = {"dir": "package", "checkpoint": {"path": "base"}}
        self.config.write_text(tomli_w.dumps(content | {"templates": templates}))

    def layer(self, layer: int) -> Path:
        return self.package / f"{PREFIX}_p8_l{layer}_together.axmodel"


def make_package(folder: Path, config: ModelConfig, seed: int = 2, **flags: Any) -> VendorSet:
    """Everything that a build needs; the weights of seed 1 are in the package, those of `seed` in the GGUF."""
    made = VendorSet(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_source(made.base, config, tiny_weights(config, 1))
    write_source(made.gguf, config, tiny_weights(config, seed))
    options = CompileOptions(**(LENGTHS | flags))
    compile_published("reference", open_checkpoint(made.base), made.package, options)
    (made.package / TEMPLATE_FILE).unlink()
    _rename(made.package, config, options)
    _write_texts(made.package, config)
    made.configure()
    return made


def compiled_anew(made: VendorSet, config: ModelConfig, seed: int, output: Path, **flags: Any) -> dict[str, bytes]:
    """What the compiler makes of other weights, under the package's names."""
    source = write_source(output.with_suffix(".base"), config, tiny_weights(config, seed))
    options = CompileOptions(**(LENGTHS | flags))
    compile_published("reference", open_checkpoint(source), output, options)
    _rename(output, config, options)
    return {path.name: path.read_bytes() for path in output.iterdir() if path.suffix in (".axmodel", ".bin")}


def _rename(directory: Path, config: ModelConfig, options: CompileOptions) -> None:
    names = engine_names(config, options.prefill_len)
    for path in directory.glob("*.axmodel"):
        path.rename(path.with_name(path.name.replace(names.layer.split("_p")[0], PREFIX, 1)))


def _write_texts(package: Path, config: ModelConfig) -> None:
    fields = {
        "model_name": "Vendor-7B",
        "tokenizer_type": "Qwen3",
        "url_tokenizer_model": TOKENIZER,
        "template_filename_axmodel": f"{PREFIX}_p8_l%d_together.axmodel",
        "axmodel_num": config.num_hidden_layers,
        "filename_post_axmodel": f"{PREFIX}_post.axmodel",
        "filename_tokens_embed": EMBEDDING_FILE,
        "tokens_embed_num": config.vocab_size,
        "tokens_embed_size": config.hidden_size,
        "system_prompt": "You are a test.",
        "use_mmap_load_embed": True,
    }
    if config.layer_types:
        fields |= {"layer_types": list(config.layer_types), "sliding_window": config.sliding_window}
    (package / "config.json").write_text(json.dumps(fields, indent=4))
    (package / "post_config.json").write_text('{"enable_temperature": false, "top_k": 3}')
    (package / "README.md").write_text("a vendor's words")
    write_tokenizer(package / TOKENIZER, [f"t{i}" for i in range(config.vocab_size)])


def write_tokenizer(path: Path, tokens: list[str], kind: int = 3) -> None:
    """The vendor's text form: pieces (0), bytes (1) or texts (3)."""
    encode = {
        0: lambda text: base64.b64encode(text.replace("\u2581", " ").encode()).decode() + " -1.0 1",
        1: lambda text: base64.b64encode(text.encode()).decode(),
        3: str,
    }[kind]
    lines = [f"430 {kind}", "1 1 0", "2 2 ", f"{len(tokens)}" + (" 0 1" if kind == 3 else ""), *map(encode, tokens)]
    path.write_text("\n".join(lines) + "\n")
