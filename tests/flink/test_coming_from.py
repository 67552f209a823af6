"""The page for those who come from Flink's interval join shows what both print."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.pages import run_blocks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_tables_of_flink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_blocks("coming-from-flink.md", {}) == 2
