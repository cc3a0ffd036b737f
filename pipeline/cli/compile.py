"""`engineset llm-build`: the reference compiler under the vendor's flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline.checkpoint.open import open_checkpoint
from pipeline.toolchain.compilers import REFERENCE, compile_published
from pipeline.toolchain.options import SCALE_RULES, SCALE_TYPES, CompileOptions


@click.command("llm-build")
@click.option("--input_path", required=True, type=click.Path(path_type=Path), help="Hugging Face directory.")
@click.option("--output_path", required=True, type=click.Path(path_type=Path), help="Where the engines go.")
@click.option("--hidden_state_type", type=click.Choice(["bf16"]), default="bf16", help="Type of the hidden state.")
@click.option("--kv_cache_len", default=1024, show_default=True, help="Rows of the decode cache.")
@click.option("--prefill_len", default=128, show_default=True, help="Tokens of a prefill call.")
@click.option("--last_kv_cache_len", multiple=True, type=int, help="A prefix of the prefill ladder; repeat it.")
@click.option("--chip", default="AX650", show_default=True, help="Target.")
@click.option("-c", "context", type=click.Choice(["0"]), default="0", help="Accepted as the vendor's tool does.")
@click.option("--parallel", default=1, help="Accepted as the vendor's tool does; one process compiles.")
@click.option("-w", "--weight_type", default="bf16", show_default=True, help="bf16, fp32, s8 or s4.")
@click.option("--post_weight_type", default="", help="Of the head; bf16 by default for s8 and s4.")
@click.option("--scale_rule", default=SCALE_RULES[0], show_default=True, help=f"s8: {', '.join(SCALE_RULES[1:])} too.")
@click.option("--scale_type", default=SCALE_TYPES[0], show_default=True, help="s4: bf16 or fp16.")
@click.option("--fold_norms", is_flag=True, help="Multiply the gains of norms into the projections behind them.")
@click.option(
    "--prefill_share", default=0.4, show_default=True, help="Part of each matrix stored twice; layout seed 0."
)
@click.option("--corrections", default=0.3, show_default=True, help="s8: expected one-step corrections in a row.")
@click.option("--layout-seed", default=0, show_default=True, help="Memory map; 0 is the published layout.")
@click.option("--rounding", default="nearest", show_default=True, help="nearest or truncate.")
def llm_build(input_path: Path, output_path: Path, **flags: Any) -> None:
    """Compile a Hugging Face directory with the reference compiler."""
    for accepted in ("hidden_state_type", "context", "parallel"):
        del flags[accepted]
    options = CompileOptions(**flags)
    for path in compile_published(REFERENCE, open_checkpoint(input_path), output_path, options):
        click.echo(path)
