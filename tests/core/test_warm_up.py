"""Workers load all compiled code before the first row: the list of modules is complete, and threads may share it."""

import subprocess
import sys
from pathlib import Path

import whenabouts.core
from whenabouts.core.hosting.warm_up import KERNELS


def test_every_module_with_compiled_code_is_loaded() -> None:
    core = Path(str(whenabouts.core.__file__)).parent
    with_kernels = [file for file in core.rglob("*.py") if "core.arrays.jit import" in file.read_text()]
    assert tuple(sorted(".".join(file.relative_to(core).with_suffix("").parts) for file in with_kernels)) == KERNELS


IMPORTS_AT_ONCE = """
import sys, threading, time
from importlib.abc import MetaPathFinder

begun = threading.Event()

class Slow(MetaPathFinder):
    # Stops in the middle of the import of numba, until the other thread wants a part of it.
    def find_spec(self, name, path, target=None):
        if name.startswith("numba.") and not begun.is_set():
            begun.set()
            time.sleep(1)
        return None

sys.meta_path.insert(0, Slow())
failed = []

def load(name):
    try:
        __import__(name)
    except BaseException as error:
        failed.append(f"{name}: {error!r}")

whole = threading.Thread(target=load, args=("whenabouts.core.arrays.jit",))
whole.start()
begun.wait()
part = threading.Thread(target=load, args=("whenabouts.core.arrays.kernel",))
part.start()
part.join(), whole.join()
print(failed)
"""


def test_two_threads_may_load_kernels_at_once() -> None:
    command = [sys.executable, "-c", IMPORTS_AT_ONCE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stdout + done.stderr
