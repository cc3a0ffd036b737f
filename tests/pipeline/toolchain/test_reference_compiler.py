"""What the reference compiler writes, read with the `onnx` package and by hand."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from pipeline.axmodel.walk import EngineIo, walk_engine
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.protocol import Float32
from pipeline.engineset.names import engine_file
from pipeline.errors import NotFiniteError, ToolchainError
from pipeline.refit.plan import plan_engine
from pipeline.toolchain import reference
from pipeline.toolchain.container import Group, frame_container
from pipeline.toolchain.engine_map import rope_tables
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model
from tests.helpers.engines import ARCHITECTURES, KINDS, Case, small_options, stored_rows, true_layouts
from tests.helpers.tiny import tiny_config

EMBEDDING = "model.embed_tokens.weight.bfloat16.bin"


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("qwen")
    compile_model(NoiseCheckpoint(tiny_config("qwen3"), 1), directory, small_options(9))
    return directory


def test_file_names_are_the_vendors(qwen: Path) -> None:
    layers = [f"qwen3_p8_l{layer}_together.axmodel" for layer in range(2)]
    assert sorted(path.name for path in qwen.iterdir()) == sorted([*layers, "qwen3_post.axmodel", EMBEDDING])


def test_same_arguments_give_the_same_bytes_in_another_process(qwen: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from pipeline.checkpoint.noise import NoiseCheckpoint\n"
        "from pipeline.toolchain.reference import compile_model\n"
        "from tests.helpers.engines import small_options\n"
        "from tests.helpers.tiny import tiny_config\n"
        f"compile_model(NoiseCheckpoint(tiny_config('qwen3'), 1), Path({str(tmp_path)!r}), small_options(9))\n"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=Path(__file__).parents[3])
    assert len(list(qwen.iterdir())) == 4
    for path in qwen.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_container_is_of_generation_7(qwen: Path) -> None:
    model = onnx.load(qwen / "qwen3_p8_l1_together.axmodel")
    assert (model.ir_version, model.producer_name) == (10, "Pulsar2")
    assert model.doc_string == "Pulsar2 Version:  7.0\nPulsar2 Commit: reference"
    assert [(item.domain, item.version) for item in model.opset_import] == [("", 18)]
    assert model.graph.name == "ax-model"
    names = [f"subgraph_npu_{group}" for group in range(3)]
    assert [(node.op_type, node.domain, node.name) for node in model.graph.node] == [("neu mode", "", n) for n in names]
    blobs = {tensor.name: tensor for tensor in model.graph.initializer}
    assert set(blobs) == {"npu_params", "npu_dyn_params", *(f"{name}_b1_neu" for name in names)}
    for tensor in blobs.values():
        assert tensor.data_type == onnx.TensorProto.UINT8
        assert list(tensor.dims) == [len(tensor.raw_data)]
    assert blobs["npu_dyn_params"].raw_data == b""


def test_container_is_what_protobuf_writes(qwen: Path) -> None:
    for name in ("qwen3_p8_l1_together.axmodel", "qwen3_post.axmodel"):
        model = onnx.load(qwen / name)
        assert model.SerializeToString(deterministic=True) == (qwen / name).read_bytes()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 1 << 14, 70_000])
def test_frame_fits_blobs_of_any_size(size: int) -> None:
    io = EngineIo("input", "BF16", (1, 1, 8))
    frame = frame_container([Group((io,), (io,), b"code" * 99)], size, "7.0")
    blob = np.random.default_rng(size).bytes(size)
    model = onnx.ModelProto.FromString(frame.head + blob + frame.tail)
    assert model.graph.initializer[0].raw_data == blob
    assert [tensor.name for tensor in model.graph.initializer][:2] == ["npu_params", "npu_dyn_params"]
    assert model.SerializeToString(deterministic=True) == frame.head + blob + frame.tail


@pytest.mark.parametrize("seed", [1, 10])
def test_engines_are_the_same_by_ranges_of_any_size(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise, options = NoiseCheckpoint(Case(seed).config, 1), Case(seed).options
    paths = compile_model(noise, tmp_path / "whole", options)
    monkeypatch.setattr(reference, "ELEMENTS_AT_A_TIME", 2300)
    for path in compile_model(noise, tmp_path / "ranges", options):
        assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes(), path.name
    assert len(paths) == 3


@pytest.mark.parametrize("tensor", ["lm_head.weight", "model.embed_tokens.weight"])
def test_a_number_that_does_not_fit_is_named(tensor: str, tmp_path: Path) -> None:
    class Huge(NoiseCheckpoint):
        def read(self, name: str, rows: slice | None = None) -> Float32:
            values = super().read(name, rows)
            if name == tensor and rows is not None and rows.start <= 900 < rows.stop:
                values[900 - rows.start, 7] = np.finfo(np.float32).max
            return values

    with pytest.raises(NotFiniteError, match=rf"noise-1: {tensor}: element \[900, 7\] does not fit bf16"):
        compile_model(Huge(tiny_config("llama", num_hidden_layers=1), 1), tmp_path, small_options())
    assert not any(
        path.name.startswith((".", "llama_post" if "head" in tensor else "model")) for path in tmp_path.iterdir()
    )


def test_groups_are_decode_and_then_the_prefill_ladder(qwen: Path) -> None:
    engine = walk_engine(qwen / "qwen3_p8_l0_together.axmodel")
    tokens = [(1, 16), (8, 0), (8, 8)]
    for index, (group, (m, history)) in enumerate(zip(engine.groups, tokens, strict=True)):
        shapes = {io.name.removesuffix(f"_{index}"): (io.dtype, io.shape) for io in (*group.inputs, *group.outputs)}
        cache = ("BF16", (1, max(history, 1), 64))
        assert shapes == {
            "K_cache": cache,
            "V_cache": cache,
            "indices": ("U32", (1, m)),
            "input": ("BF16", (1, m, 320)),
            "mask": ("BF16", (1, m, history + m)),
            "K_cache_out": ("BF16", (1, m, 64)),
            "V_cache_out": ("BF16", (1, m, 64)),
            "output": ("BF16", (1, m, 320)),
        }
        assert all(io.name.endswith(f"_{index}") for io in group.inputs) == (index > 0)
    post = walk_engine(qwen / "qwen3_post.axmodel")
    assert [(io.name, io.shape) for io in (*post.groups[0].inputs, *post.groups[0].outputs)] == [
        ("input", (1, 1, 320)),
        ("output", (1, 1, 1000)),
    ]


def test_attributes_and_extra_data_say_the_same_as_the_graph(qwen: Path) -> None:
    model = onnx.load(qwen / "qwen3_p8_l0_together.axmodel")
    values = {value.name: value.type.tensor_type for value in model.graph.output}
    for node in model.graph.node:
        attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        assert set(attributes) == {"neu_name", "npu_graph_info", "outputs_info", "version"}
        info = json.loads(attributes["npu_graph_info"])
        assert info["dotneus"][0]["neu_key"] == f"{node.name}_b1_neu"
        assert [item["const_data_key"] for item in info["dotneus"][0]["extra_inputs"]] == ["npu_params"]
        for name, (dtype, shape) in json.loads(attributes["outputs_info"]).items():
            assert dtype == "BF16"
            assert shape == [dim.dim_value for dim in values[name].shape.dim]
    (extra,) = (item.value for item in model.metadata_props if item.key == "extra_data")
    data = base64.b64decode(extra, validate=True)
    for name in [*values, *(f"{node.name}_b1_neu" for node in model.graph.node)]:
        assert bytes([len(name)]) + name.encode() in data


@pytest.mark.parametrize("seed", [0, 4, 7, 11, 15])
def test_every_copy_holds_the_checkpoints_weights(tmp_path: Path, seed: int) -> None:
    case = Case(seed)
    checkpoint = NoiseCheckpoint(case.config, 3)
    compile_model(checkpoint, tmp_path, case.options)
    for kind, layout in true_layouts(checkpoint, case.options).items():
        engine = tmp_path / engine_file(case.config, case.options.prefill_len, kind)
        sources = {item.tensor: item.sources[0] for item in plan_engine(case.config, kind).assignments}
        for stored in layout.tensors:
            values = checkpoint.read(sources[stored.name]).reshape(stored.shape)
            expected = integers(values, stored.codec)
            for copy in stored.copies:
                for rows, found in stored_rows(engine, stored, copy):
                    assert np.array_equal(found, expected[rows]), (stored.name, copy.name)


def integers(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "bf16":
        return values.astype(ml_dtypes.bfloat16).view(np.uint16)
    return values.view(np.uint32) >> (16 if kind == "bf16_truncated" else 0)


@pytest.mark.parametrize("seed", [0, 3, 13])
def test_nothing_but_the_weights_depends_on_the_weights(tmp_path: Path, seed: int) -> None:
    case = Case(seed)
    for build in (1, 2):
        compile_model(NoiseCheckpoint(case.config, build), tmp_path / str(build), case.options)
    for kind, layout in true_layouts(NoiseCheckpoint(case.config, 1), case.options).items():
        name = engine_file(case.config, case.options.prefill_len, kind)
        first, second = (np.fromfile(tmp_path / str(build) / name, np.uint8) for build in (1, 2))
        start = walk_engine(tmp_path / "1" / name).weights.offset if name.endswith(".axmodel") else 0
        owned = np.zeros(first.size, np.bool_)
        for stored in layout.tensors:
            for copy in stored.copies:
                at = copy.planes[0].addresses(0, stored.shape[0])
                for byte in range(copy.planes[0].width // 8):
                    owned[start + at[at >= 0] // 8 + byte] = True
        assert not (first != second)[~owned].any()
        assert (first != second)[owned].mean() > 0.7


def test_layers_of_one_model_have_one_map(qwen: Path) -> None:
    """Microcode differs in the layer's number alone."""
    first, second = (walk_engine(qwen / f"qwen3_p8_l{layer}_together.axmodel") for layer in (0, 1))
    for a, b in zip(first.microcode(), second.microcode(), strict=True):
        old, new = (e.path.read_bytes()[m.offset : m.offset + m.size] for e, m in ((first, a), (second, b)))
        assert [at for at in range(len(old)) if old[at] != new[at]] == [16]


def test_rope_tables_are_cos_and_sin_rounded_once() -> None:
    tables = rope_tables(10000.0, 48, 40)
    angle = np.arange(40)[:, None] * 10000.0 ** (-np.arange(24) / 24)
    assert np.allclose(tables["rope.cos"], np.cos(angle), atol=1e-7)
    assert np.allclose(tables["rope.sin"], np.sin(angle), atol=1e-7)
    assert tables["rope.cos"].dtype == np.float32


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"weight_type": "fp8_e4m3"}, r"weight_type.*expected bf16 or fp32 or s8 or s4, found fp8_e4m3"),
        ({"post_weight_type": "s8"}, r"post_weight_type.*expected bf16, found s8"),
        ({"weight_type": "s8", "scale_rule": "row/128"}, r"scale_rule.*row/127 or row/127.5 or .*found row/128"),
        ({"weight_type": "s4", "scale_type": "fp32"}, r"scale_type.*bf16 or fp16, found fp32"),
        ({"fold_norms": True}, r"fold_norms: only integer engines fold norms \(found bf16\)"),
        ({"prefill_share": 1.5}, r"prefill_share: out of range \(expected 0 to 1, found 1.5\)"),
        ({"weight_type": "s8", "corrections": -0.1}, r"corrections.*found -0.1"),
        ({"chip": "AX999"}, r"chip.*AX650.*found AX999"),
        ({"rounding": "up"}, r"rounding.*found up"),
        ({"prefill_len": 0}, r"found 0, 1024"),
        ({"prefill_len": 2048}, r"found 2048, 1024"),
        ({"kv_cache_len": 1 << 21}, r"<= 1048576"),
        ({"last_kv_cache_len": (128, 1000)}, r"last_kv_cache_len.*0\.\.896, found 1000"),
        ({"last_kv_cache_len": (-1,)}, r"found -1"),
    ],
)
def test_flags_that_it_does_not_know_are_refused(flags: dict[str, object], reason: str) -> None:
    with pytest.raises(ToolchainError, match=reason):
        CompileOptions(**flags)


@pytest.mark.parametrize("arch", [*ARCHITECTURES, "gemma3"])
def test_every_tensor_of_the_architecture_has_a_place(arch: str) -> None:
    config = tiny_config(arch)
    layouts = true_layouts(NoiseCheckpoint(config, 1), small_options(2))
    for kind in KINDS:
        planned = {item.tensor for item in plan_engine(config, kind).assignments}
        assert planned == set(layouts[kind].names())
