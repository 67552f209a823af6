"""What is added to our wheels: Python imports a namespace package from an archive that has entries for its folders."""

from __future__ import annotations

import runpy
import zipfile
from pathlib import Path
from zipimport import zipimporter

SETUP = Path(__file__).parents[2] / "setup.py"


def test_a_namespace_package_is_found_in_an_archive_that_has_entries_for_its_folders(tmp_path: Path) -> None:
    add_folders = runpy.run_path(str(SETUP))["add_folders"]
    found = []
    for wheel in (tmp_path / "plain.whl", tmp_path / "ours.whl"):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("outer/inner/__init__.py", "")
        if wheel.stem == "ours":
            add_folders(str(wheel))
        found.append(zipimporter(str(wheel)).find_spec("outer"))
    assert found[0] is None
    assert found[1] is not None
    assert list(found[1].submodule_search_locations or []) == [str(tmp_path / "ours.whl" / "outer")]
