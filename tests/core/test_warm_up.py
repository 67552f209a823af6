"""Workers load all compiled code before the first row: the list of modules is complete."""

from pathlib import Path

import whenabouts.core
from whenabouts.core.hosting.warm_up import KERNELS


def test_every_module_with_compiled_code_is_loaded() -> None:
    core = Path(str(whenabouts.core.__file__)).parent
    with_kernels = [file for file in core.rglob("*.py") if "core.arrays.jit import" in file.read_text()]
    assert tuple(sorted(".".join(file.relative_to(core).with_suffix("").parts) for file in with_kernels)) == KERNELS
