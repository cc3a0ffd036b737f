"""`engineset llm-build`: the reference compiler under the vendor's flags."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.checkpoint.open import open_checkpoint
from pipeline.toolchain.compilers import REFERENCE, compile_published
from pipeline.toolchain.options import CompileOptions


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
@click.option("-w", "--weight_type", default="bf16", show_default=True, help="bf16 or fp32.")
@click.option("--layout-seed", default=0, show_default=True, help="Memory map; 0 is the published layout.")
@click.option("--rounding", default="nearest", show_default=True, help="nearest or truncate.")
def llm_build(
    input_path: Path,
    output_path: Path,
    hidden_state_type: str,
    kv_cache_len: int,
    prefill_len: int,
    last_kv_cache_len: tuple[int, ...],
    chip: str,
    context: str,
    parallel: int,
    weight_type: str,
    layout_seed: int,
    rounding: str,
) -> None:
    """Compile a Hugging Face directory with the reference compiler."""
    options = CompileOptions(
        weight_type, kv_cache_len, prefill_len, tuple(last_kv_cache_len), chip, layout_seed, rounding
    )
    for path in compile_published(REFERENCE, open_checkpoint(input_path), output_path, options):
        click.echo(path)
