"""The package offers the objects that its names promise, whatever was imported before."""

from importlib import import_module
from types import ModuleType

import whenabouts.spark_plugin as package


def test_no_module_hides_a_public_name() -> None:
    for module in set(package._HOMES.values()):
        import_module(f"{package.__name__}.{module}")
    assert not [name for name in package.__all__ if isinstance(getattr(package, name), ModuleType)]
