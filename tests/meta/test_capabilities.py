"""The table of capabilities agrees with the harnesses' declarations; no engine is started for it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from whenabouts.conformance import capabilities
from whenabouts.conformance.engine import load
from whenabouts.core.harness import Capabilities, Gap, LocalHarness

DOCUMENT = Path(__file__).parents[2] / "docs" / "capabilities.md"


@pytest.mark.skipif(
    find_spec("pyflink") is None or find_spec("pyspark") is None, reason="a harness needs its engine's package"
)
def test_the_committed_table_is_current() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert capabilities.written(text, [load(name) for name in capabilities.ENGINES]) == text


class _Poor(LocalHarness):
    name = "poor"
    capabilities = Capabilities({law: Gap("never", "why", "1") for law in ("two", "three")})


def test_gaps_stand_in_the_table_with_their_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    laws = {"Laws of a": ["one", "two"], "Laws of b": ["three"]}
    monkeypatch.setattr(capabilities, "law_groups", lambda: laws)
    monkeypatch.setattr(
        _Poor, "capabilities", Capabilities({law: Gap("never", "why", "1") for law in ("two", "three")})
    )
    told = list(capabilities.lines([LocalHarness, _Poor]))
    assert told[0] == "| laws | how many | local | poor |"
    assert told[2:4] == ["| Laws of a | 2 | yes | all but 1 |", "| Laws of b | 1 | yes | no |"]
    assert told[5:] == ["- poor lacks `three`: never, why.", "- poor lacks `two`: never, why."]
    with pytest.raises(ValueError, match="there is no <!-- generated"):
        capabilities.written("no markers", [LocalHarness])
