"""Templates: validation, contents, and serialisation."""

import json
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from whenabouts.core import Code, Histogram, InputError, QueryError, Template
from whenabouts.core.times.templates import read_templates


@pytest.mark.parametrize(
    "buckets",
    [
        [],
        [(0, 0, 1)],
        [(10, 0, 1)],
        [(0, 10, 0.5), (11, 20, 0.5)],
        [(0, 10, 0.5), (9, 20, 0.5)],
        [(0, 10, -0.5), (10, 20, 1.5)],
        [(0, 10, 0.5)],
        [(0, 10, 0.5), (10, 20, 0.5 + 3e-9)],
        [(0, 10, float("nan"))],
        [(0, 10, float("inf"))],
        [(0, 10, "much")],
        [(0, 10, None)],
        [(0, 10)],
        [(0, 2**54, 1)],
        5,
        "fast",
    ],
)
def test_what_is_no_template_is_refused(buckets: Any) -> None:
    with pytest.raises(InputError) as told:
        read_templates({"one": buckets})
    assert told.value.code == Code.BAD_TEMPLATE
    assert "'one'" in told.value.problem


def test_probabilities_are_divided_by_their_exact_sum() -> None:
    template = Template(((0, 10, 0.1), (10, 20, 0.2), (20, 30, 0.7 + 5e-10)))
    assert sum(p for *_, p in template.exact) == 1
    total = Fraction(0.1) + Fraction(0.2) + Fraction(0.7 + 5e-10)
    assert template.masses[1] == float(Fraction(0.2) / total)


def test_text_probabilities_are_exact_and_offsets_may_be_durations() -> None:
    template = Template(((0, "1 ms", "1/3"), ("1ms", "2ms", "2/3")))
    assert template.exact == ((-2000, -1000, Fraction(1, 3)), (-1000, 0, Fraction(2, 3)))


def test_end_buckets_of_probability_0_do_not_count_and_inner_ones_do() -> None:
    template = Template(((0, 5, 0), (5, 10, 0.5), (10, 15, 0), (15, 20, 0.5), (20, 40, 0)))
    assert template.edges == (-35, -30, -25, -20)
    assert template.masses == (0.5, 0.0, 0.5)
    assert (template.length_us, template.end_us) == (35, 40)


def test_templates_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "templates.json"
    path.write_text(json.dumps({"a": [[0, "10us", 0.5], [10, 20, 0.5]]}))
    assert Histogram("t", "k", str(path)) == Histogram("t", "k", {"a": [(0, 10, 0.5), (10, 20, 0.5)]})


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"a": 3}', "{"])
def test_a_file_that_holds_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "templates.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"WA-10(08|12)"):
        read_templates(path)
    with pytest.raises(InputError, match="WA-1008"):
        read_templates(tmp_path / "nowhere.json")


def test_several_templates_need_a_column_that_says_which() -> None:
    with pytest.raises(QueryError, match="WA-2006"):
        Histogram("t", templates={"a": [(0, 1, 1)], "b": [(0, 2, 1)]})
    assert Histogram("t", templates=Template(((0, 1, 1),))).template_column is None


def test_they_travel_to_processes_whose_hashes_of_text_differ(tmp_path: Path) -> None:
    template = Template(((0, 1, "1/2"), (1, 2, "1/2")))
    assert hash(template) == hash(Template(((0, 1, "1/2"), (1, 2, "1/2"))))
    (tmp_path / "template").write_bytes(pickle.dumps(template))
    script = (
        "import pickle, sys; from whenabouts.core import Template;"
        "sent = pickle.load(open(sys.argv[1], 'rb')); made = Template(((0, 1, '1/2'), (1, 2, '1/2')));"
        "print(sent == made and hash(sent) == hash(made))"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "template")], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "True"
