"""An import-linter contract: the packages that a package may import, everything else being forbidden.

import-linter's own contracts name what is forbidden, so a new dependency would pass unnoticed; this one lists what
is allowed. The standard library and the package itself always are.
"""

from __future__ import annotations

import sys
from typing import Any

from importlinter import Contract, ContractCheck, fields, output

import whenabouts  # noqa: F401  # from here on its spec names all source roots, which import-linter reads


class AllowedImports(Contract):
    """Fails on each import from `package` of anything that is neither in `allowed`, nor the package, nor the stdlib."""

    type_name = "allowed_imports"

    package = fields.StringField()
    allowed = fields.SetField(subfield=fields.StringField())

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        package = str(self.package)
        allowed: set[str] = {package, *self.allowed}  # type: ignore[misc]  # the field is its value in an instance
        offences = [
            (importer, imported)
            for importer in sorted({package} | graph.find_descendants(package))
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if imported.split(".")[0] not in sys.stdlib_module_names
            and not any(imported == name or imported.startswith(f"{name}.") for name in allowed)
        ]
        return ContractCheck(kept=not offences, metadata={"offences": offences})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["offences"]:
            output.print_error(f"{importer} imports {imported}, which {self.package} may not.")
