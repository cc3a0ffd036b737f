"""What the runner asks of the driver, and in which order, seen from a library that writes every call down."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from tests.helpers.fake_runtime import Ran, run_fake, write_fake_set

ON, OFF = 0, 0xC780
TEARDOWN = [
    "axclrtEngineDestroyIO",
    "axclrtEngineDestroyIOInfo",
    "axclrtFree",
    "axclrtEngineUnload",
    "axclrtEngineFinalize",
    "axclrtDestroyContext",
    "axclrtResetDevice",
    "axclFinalize",
]
Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def with_prompt(count: int, *arguments: str, groups: list[list[int]] | None = None) -> Ran:
        changes = {} if groups is None else {"groups": groups}
        tokens = ",".join(str(10 + i) for i in range(count))
        ran = run_fake(write_fake_set(tmp_path / "set", **changes), tmp_path, "--tokens", tokens, *arguments)
        assert ran.code == 0, ran.err
        return ran

    return with_prompt


def groups_used(ran: Ran) -> list[tuple[int, int]]:
    """(group, first index) of every pass through the layers."""
    return [(call["group"], call["indices"][0]) for call in ran.layer_calls()][::3]


def test_calls_init_and_teardown_order(run: Run) -> None:
    names = run(3, "--max-tokens", "2").names()
    assert names[:7] == [
        "axclInit",
        "axclrtGetDeviceList",
        "axclrtSetDevice",
        "axclrtCreateContext",
        "axclrtSetCurrentContext",
        "axclrtEngineInit",
        "axclSetLogLevel",
    ]
    last = len(names) - names[::-1].index("axclrtEngineExecute")
    order = [name for name, _ in groupby(name for name in names[last:] if name != "axclrtMemcpy")]
    assert order == TEARDOWN


def test_calls_everything_is_given_back(run: Run) -> None:
    ran = run(3)
    assert len(ran.of("axclrtFree", known=1)) == len(ran.of("axclrtMalloc"))
    assert len(ran.of("axclrtEngineUnload")) == len(ran.of("axclrtEngineLoadFromFile")) == 4
    assert len(ran.of("axclrtEngineDestroyIO")) == 3 * 4 + 2


def test_calls_post_is_loaded_first_and_nothing_after_the_first_call(run: Run) -> None:
    ran = run(3)
    loads = [Path(call["path"]).name for call in ran.of("axclrtEngineLoadFromFile")]
    assert loads == ["m_post.axmodel", *(f"m_l{i}_together.axmodel" for i in range(3))]
    after = ran.names()[ran.names().index("axclrtEngineExecute") :]
    assert not {"axclrtMalloc", "axclrtEngineLoadFromFile"} & set(after)


def test_calls_bindings_are_bases_with_exact_sizes_and_outputs_of_their_own(run: Run) -> None:
    ran = run(70, "--max-tokens", "3")
    bases = {call["address"]: call["bytes"] for call in ran.of("axclrtMalloc")}
    assert {call["group"] for call in ran.layer_calls()} == {0, 1, 2}
    for call in ran.layer_calls():
        m, history = [[1, 200], [64, 0], [64, 64], [64, 128]][call["group"]]
        rows = 200 if m == 1 else max(history, 1)
        sizes = {name: size for name, (_, size) in (call["in"] | call["out"]).items()}
        assert sizes == {
            "K_cache": rows * 8,
            "V_cache": rows * 8,
            "indices": 4 * m,
            "input": 16 * m,
            "mask": 2 * m * (history + m),
            "K_cache_out": 8 * m,
            "V_cache_out": 8 * m,
            "output": 16 * m,
        }
        for address, size in (call["in"] | call["out"]).values():
            assert size <= bases[address]
        outputs = [address for address, _ in call["out"].values()]
        assert len({*outputs, *(address for address, _ in call["in"].values())}) == 8


def test_calls_one_io_for_each_group_of_each_layer(run: Run) -> None:
    ran = run(70, "--max-tokens", "3")
    uses: dict[int, set[tuple[int, int]]] = {}
    for call in ran.of("axclrtEngineExecute"):
        uses.setdefault(call["io"], set()).add((call["model"], call["group"]))
    assert all(len(use) == 1 for use in uses.values())


def test_calls_hidden_state_alternates_and_reaches_the_post_engine(run: Run) -> None:
    ran = run(2, "--max-tokens", "2")
    *layers, post = ran.of("axclrtEngineExecute")[-4:]
    assert layers[0]["out"]["output"][0] == layers[1]["in"]["input"][0] != layers[0]["in"]["input"][0]
    assert layers[1]["out"]["output"][0] == layers[2]["in"]["input"][0] == layers[0]["in"]["input"][0]
    assert post["in"]["input"][0] == layers[2]["out"]["output"][0]


def test_calls_caches_are_zeroed_before_first_use(run: Run) -> None:
    ran = run(3)
    first = ran.names().index("axclrtEngineExecute")
    zeroed = {c["address"]: c["bytes"] for c in ran.calls[:first] if c["call"] == "axclrtMemset" and c["value"] == 0}
    for call in ran.layer_calls():
        for name in ("K_cache", "V_cache"):
            assert zeroed[call["in"][name][0]] == 200 * 8


def test_calls_decode_mask_cache_and_index(run: Run) -> None:
    ran = run(3, "--no-prefill", "--max-tokens", "3")
    for position, call in enumerate(ran.layer_calls()[::3]):
        history = [10 + i for i in range(position)]
        assert call["indices"] == [position]
        assert call["tokens"] == [10 + position]
        assert call["mask"] == [ON] * position + [OFF] * (200 - position) + [ON]
        assert call["keys"] == call["values"] == history + [0] * (200 - position)


def test_calls_chunk_mask_starts_the_current_block_at_the_cap(run: Run) -> None:
    ran = run(70, groups=[[1, 200], [64, 0], [64, 128]])
    first, second = ran.layer_calls()[0], ran.layer_calls()[3]
    assert first["group"] == 1
    assert first["tokens"] == [10 + i for i in range(64)]
    for r in range(64):
        assert first["mask"][r * 64 :][:64] == [ON] * (r + 1) + [OFF] * (63 - r)
    assert (second["group"], second["indices"]) == (2, list(range(64, 128)))
    assert second["tokens"] == [10 + i for i in range(64, 70)] + [0] * 58
    assert second["keys"] == [10 + i for i in range(64)] + [0] * 64
    for r in range(64):
        row = second["mask"][r * 192 :][:192]
        seen = [ON] * 64 + [OFF] * 64 + [ON] * (r + 1) + [OFF] * (63 - r)
        assert row == (seen if r < 6 else [OFF] * 192)


def test_calls_padding_never_reaches_the_cache(run: Run) -> None:
    ran = run(70, "--max-tokens", "2")
    assert ran.layer_calls()[-1]["keys"] == [10 + i for i in range(70)] + [0] * 130


@pytest.mark.parametrize(
    ("prompt", "groups", "expected"),
    [
        (64, None, [(1, 0)]),
        (65, None, [(1, 0), (0, 64)]),
        (66, None, [(1, 0), (2, 64)]),
        (130, None, [(1, 0), (2, 64), (3, 128)]),
        (1, None, [(0, 0)]),
        # a ladder with a gap, not in order of history
        (130, [[1, 200], [64, 192], [64, 0]], [(2, 0), (1, 64), (1, 128)]),
        # beyond the ladder: token by token
        (67, [[1, 200], [64, 0]], [(1, 0), (0, 64), (0, 65), (0, 66)]),
        # groups of less than 64 rows leave `output` untouched
        (20, [[1, 200], [16, 0], [16, 16]], [(0, i) for i in range(20)]),
        # the cache ends before the chunk does
        (198, [[1, 200], [64, 0], [64, 64], [64, 128], [64, 192]], [(1, 0), (2, 64), (3, 128), (4, 192)]),
        # decode is not group 0, and the smaller of two that hold the history is taken
        (3, [[64, 64], [1, 2], [1, 200]], [(0, 0)]),
        (1, [[64, 64], [1, 200], [1, 2]], [(2, 0)]),
    ],
)
def test_calls_ladder(run: Run, prompt: int, groups: list[list[int]] | None, expected: list[tuple[int, int]]) -> None:
    assert groups_used(run(prompt, "--max-tokens", "1", groups=groups)) == expected


def test_calls_second_decode_group_takes_over_when_the_first_is_full(run: Run) -> None:
    ran = run(1, "--max-tokens", "5", groups=[[1, 2], [1, 200]])
    assert groups_used(ran) == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4)]
    assert ran.out == ["11", "12", "13", "14", "15"]
