"""Sections of a report: what they say when something fails, and what they leave out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipeline.errors import RunnerError
from pipeline.hardware import machine, sections
from pipeline.hardware.card import describe_card
from pipeline.hardware.sections import Absent, Findings, Section, run_section, scrub
from tests.helpers.simulator import CARD, library_path

REASONS = {
    "absent": Absent("no such thing"),
    "failed": RunnerError("does not answer", where="axclInit"),
    "disk": OSError(28, "No space left on device"),
    "bug": ZeroDivisionError("division by zero\nand more"),
}


@pytest.mark.parametrize("case", REASONS)
def test_what_was_found_stays(case: str) -> None:
    def find(found: Findings) -> None:
        found.data["first"] = 1
        found.texts["log"] = "text"
        raise REASONS[case]

    section = run_section("name", find)
    assert section.status == ("absent" if case == "absent" else "failed")
    assert section.reason
    assert "\n" not in section.reason
    assert (section.data, section.texts) == ({"first": 1}, {"log": "text"})


@pytest.fixture
def _someone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "host_name", lambda: "tower-7")
    monkeypatch.setattr(sections, "user_name", lambda: "jane")
    monkeypatch.setattr(sections, "home_directory", lambda: Path("/home/jane doe"))


SCRUBBED = {
    "/home/jane doe/models/a.axmodel: no": ".../a.axmodel: no",
    "in '/opt/x/y.so' and /a/b": "in '.../y.so' and .../b",
    "jane@tower-7: done": "USER@HOST: done",
    "janet row/127 V3.10.2 2/3": "janet row/127 V3.10.2 2/3",
    "~/work/secret/name.bin": ".../name.bin",
}


@pytest.mark.usefixtures("_someone")
@pytest.mark.parametrize("text", SCRUBBED)
def test_scrubbed(text: str) -> None:
    assert scrub({text: [text, (1, None, text)]}) == {SCRUBBED[text]: [SCRUBBED[text], [1, None, SCRUBBED[text]]]}


def card(library: Path | str, seconds: float = 30.0) -> Section:
    return run_section("card", lambda found: describe_card(found, str(library), seconds))


def test_card_of_the_simulator() -> None:
    section = card(library_path())
    assert (section.status, section.reason) == ("done", "")
    answers = {answer["call"]: answer["value"] for answer in section.data["calls"]}
    assert answers["axclrtGetDeviceList"] == [CARD]
    assert answers["axclrtGetDeviceProperties"]["memory_kib"] > 0
    assert answers["axclrtGetSocName"] == "AX650N"
    assert list(answers)[-1] == "axclFinalize"


def test_host_without_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINESET_SIM_CARDS", "0")
    section = card(library_path())
    assert section.status == "failed"
    assert section.reason.startswith("axclInit: 0x")


FUNCTIONS = {
    "hang": ("sleep(600)", "after axclrtGetFullVersion: a call did not end"),
    "abort": ("abort()", "after axclrtGetFullVersion: the library ended the process (found signal 6)"),
    "code": ("return 0x8030010B", "axclInit: 0x8030010b"),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_card_library_that_misbehaves(tmp_path: Path, case: str) -> None:
    body, reason = FUNCTIONS[case]
    source, library = tmp_path / "card.c", tmp_path / "card.so"
    source.write_text(
        "#include <stdlib.h>\n#include <stdio.h>\n#include <unistd.h>\n"
        'const char* axclrtGetFullVersion(void) { puts("notice of the library"); return "V1"; }\n'
        f"unsigned axclInit(const char* path) {{ {body}; return 0; }}\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-w", source, "-o", library], check=True)
    section = card(library, 2.0)
    assert section.status == "failed"
    assert section.reason.startswith(reason)
    assert section.data["said"] == ["notice of the library"]
    assert [answer["call"] for answer in section.data["calls"]][:2] == ["dlopen", "axclrtGetFullVersion"]


def test_library_that_lacks_a_function_or_another_library(tmp_path: Path) -> None:
    assert card(tmp_path / "none.so").status == "absent"
    (tmp_path / "empty.c").write_text("")
    needed, library = tmp_path / "libneeded.so", tmp_path / "card.so"
    subprocess.run(["cc", "-shared", tmp_path / "empty.c", "-o", needed], check=True)
    subprocess.run(["cc", "-shared", tmp_path / "empty.c", "-Wl,--no-as-needed", needed, "-o", library], check=True)
    assert "undefined symbol" in card(library).reason
    needed.unlink()
    assert card(library).status == "failed"


def test_cards_on_the_bus(tmp_path: Path) -> None:
    for place, ids in {"0000:01:00.0": ("0x1f4b", "0x0650"), "0000:02:00.0": ("0x8086", "0x0650")}.items():
        (tmp_path / place).mkdir()
        for name, value in zip(("vendor", "device"), ids, strict=True):
            (tmp_path / place / name).write_text(f"{value}\n")
    (tmp_path / "broken").mkdir()
    assert machine._cards(tmp_path) == 1
    assert machine._cards(tmp_path / "none") is None
