"""The operations of a layer, architecture by architecture, and what a gemma3 engine holds besides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from layouts.view import read_tensor
from pipeline.axmodel.walk import walk_engine
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.container.blob import read_blob
from pipeline.model import FULL, SLIDING
from pipeline.toolchain.engine_map import engine_map
from pipeline.toolchain.kinds import LAYER, POST_ENGINE
from pipeline.toolchain.microcode import Operand, Program
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.program import layer_program, post_program
from pipeline.toolchain.reference import ReferenceCompiler, compile_model
from tests.helpers.tiny import tiny_config

NAMES = ["", "LOAD", "STORE", "NORM", "MATMUL", "ROPE", "ATTEND", "GLU", "ADD", "ROUND"]
OPTIONS = CompileOptions("s8", kv_cache_len=16, prefill_len=8, layout_seed=4)
HALF_1 = "LOAD NORM MATMUL MATMUL MATMUL {qk}ROPE ROPE ROUND ROUND ROUND ATTEND STORE STORE MATMUL {after}ADD"
HALF_2 = "NORM MATMUL MATMUL GLU MATMUL {after}ADD STORE"


def operands_of(arch: str, kind: str = LAYER, options: CompileOptions = OPTIONS) -> dict[str, Operand]:
    memory = engine_map(tiny_config(arch), options, kind)
    return {name: placed.operand(prefill=False) for name, placed in memory.placed.items()}


def tensors_of(program: Program, operands: dict[str, Operand], opcode: str, argument: int) -> list[str]:
    """Names of the tensors that operations of one kind read, in order."""
    name_of = {operand: name for name, operand in operands.items()}
    code = NAMES.index(opcode)
    return [name_of[program.tensors[op[1 + argument]]] for op in program.operations if op[0] == code]


@pytest.mark.parametrize(
    ("arch", "qk", "after"),
    [("llama", "", ""), ("qwen2", "", ""), ("qwen3", "NORM NORM ", ""), ("gemma3", "NORM NORM ", "NORM ")],
)
def test_operations_of_a_layer(arch: str, qk: str, after: str) -> None:
    program = layer_program(tiny_config(arch), operands_of(arch), 0, 1, 16)
    expected = f"{HALF_1} {HALF_2}".format(qk=qk, after=after).split()
    assert [NAMES[operation[0]] for operation in program.operations] == expected


def test_norms_of_gemma3_stand_before_and_behind_each_half() -> None:
    operands = operands_of("gemma3")
    program = layer_program(tiny_config("gemma3"), operands, 0, 1, 16)
    norms = ["input", "q_norm", "k_norm", "post_attention", "pre_feedforward", "post_feedforward"]
    expected = [f"self_attn.{name}.weight" if "_norm" in name else f"{name}_layernorm.weight" for name in norms]
    assert tensors_of(program, operands, "NORM", 2) == expected
    matmuls, norm_calls = (
        [op for op in program.operations if op[0] == NAMES.index(name)] for name in ("MATMUL", "NORM")
    )
    assert norm_calls[3][1] == matmuls[3][2]  # the norm behind attention reads what o_proj wrote
    assert norm_calls[5][1] == matmuls[6][2]
    adds = [op for op in program.operations if op[0] == NAMES.index("ADD")]
    assert [op[2] for op in adds] == [norm_calls[3][2], norm_calls[5][2]]


@pytest.mark.parametrize(("arch", "activation"), [("llama", 1), ("qwen3", 1), ("gemma3", 2)])
def test_activation(arch: str, activation: int) -> None:
    program = layer_program(tiny_config(arch), operands_of(arch), 0, 1, 16)
    (glu,) = (op for op in program.operations if op[0] == NAMES.index("GLU"))
    assert glu[4] == activation


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_folded_norms_are_still_read(arch: str) -> None:
    options = replace(OPTIONS, fold_norms=True, post_weight_type="s4")
    plain = layer_program(tiny_config(arch), operands_of(arch), 0, 1, 16)
    operands = operands_of(arch, options=options)
    folded = layer_program(tiny_config(arch), operands, 0, 1, 16)
    assert [op[0] for op in folded.operations] == [op[0] for op in plain.operations]
    assert tensors_of(folded, operands, "NORM", 2)[0] == "input_layernorm.weight"
    post = operands_of(arch, POST_ENGINE, options)
    assert tensors_of(post_program(tiny_config(arch), post), post, "NORM", 2) == ["model.norm.weight"]


def test_kinds_of_operands() -> None:
    operands = operands_of("qwen2", options=replace(OPTIONS, weight_type="s4", scale_type="fp16"))
    assert operands["self_attn.q_proj.weight"].kind == ("s4", "fp16")
    assert operands["self_attn.q_proj.weight"].group == 128
    assert operands["self_attn.q_proj.bias"].kind == ("bf16", "")
    assert operands["rope.cos"].kind == ("fp32", "")
    assert [len(pieces) > 0 for pieces in operands["mlp.up_proj.weight"].fields] == [True, False, True]
    s8 = operands_of("qwen2")["mlp.up_proj.weight"]
    assert (s8.kind, s8.group, [len(pieces) > 0 for pieces in s8.fields]) == (("s8", "reciprocal"), 256, [True] * 3)


def test_each_layer_type_has_its_own_rope_table(tmp_path: Path) -> None:
    config = tiny_config("gemma3", num_hidden_layers=3, layer_types=(SLIDING, FULL, SLIDING))
    compiler = ReferenceCompiler(NoiseCheckpoint(config, 1), tmp_path, OPTIONS)
    stored = engine_map(config, OPTIONS, LAYER).placed["rope.cos"].stored()
    positions = np.arange(OPTIONS.positions())[:, None]
    for layer, theta in enumerate((10000.0, 1e6, 10000.0)):
        table = read_tensor(read_blob(compiler.compile_layer(layer)), stored)
        assert np.allclose(table, np.cos(positions * theta ** (-np.arange(32) / 32)), atol=1e-6)


def test_gemma3s_embedding_is_scaled_and_its_head_is_not(tmp_path: Path) -> None:
    config = tiny_config("gemma3", num_hidden_layers=2, tie_word_embeddings=True)
    source = NoiseCheckpoint(config, 1)
    *_, post, embedding = compile_model(source, tmp_path, OPTIONS)
    rows = source.read("model.embed_tokens.weight")
    scaled = (rows * np.sqrt(np.float32(320))).astype(ml_dtypes.bfloat16)
    assert np.array_equal(np.fromfile(embedding, np.uint16).reshape(rows.shape), scaled.view(np.uint16))
    head = engine_map(config, OPTIONS, POST_ENGINE).placed["lm_head.weight"].stored()
    assert np.array_equal(read_tensor(read_blob(post), head), rows.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_a_trimmed_head_gives_as_many_logits_as_it_has_rows(tmp_path: Path) -> None:
    config = tiny_config("llama", num_hidden_layers=1, kept_rows=77)
    compiler = ReferenceCompiler(NoiseCheckpoint(config, 1), tmp_path, replace(OPTIONS, post_weight_type="s8"))
    (group,) = walk_engine(compiler.compile_post()).groups
    assert [io.shape for io in group.outputs] == [(1, 1, 77)]
    assert compiler.compile_embedding().stat().st_size == 2 * 1000 * 320
