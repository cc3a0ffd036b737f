"""What is slow by what it needs: whole builds by the real commands, and twenty layout seeds. `make check` leaves it out."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent
SLOW = (
    "acceptance",
    "tasks",
    "pipeline/engineset/test_diff_sets.py",
    "pipeline/engineset/test_verify.py",
    "pipeline/engineset/test_verify_integers.py",
    "pipeline/refit/test_real_engines.py",
    "pipeline/tokenizer/test_tokenizer_ids.py",
    "pipeline/toolchain/test_decode_integer_engines.py",
    "pipeline/toolchain/test_decode_seeds.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(ROOT / place) for place in SLOW):
            item.add_marker(pytest.mark.slow)
