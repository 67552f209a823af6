"""The laws that every host of `whenabouts` operators keeps, as a test suite that ships.

    pytest --pyargs whenabouts.conformance --engine local --engine my_package.harness:MyHarness

runs them against engines found by name (entry point group `whenabouts.conformance.engines`) or by `module:Class`.
An `oracle_*` law recomputes the answer from scratch, a `differential_*` law compares two runs that must agree.
`docs/conformance.md` says what each law means and which engines keep it.
"""
