"""Histograms of the latency of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def draw_waits(waited: Mapping[str, tuple[np.ndarray[Any, Any], float | None]], file: Path) -> None:
    """One below the other: the latency of each pair in milliseconds, and the promised bound, if any."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "whenabouts"
    figure, axes = plt.subplots(len(waited), figsize=(7, 1.8 * len(waited)), layout="constrained", squeeze=False)
    for axis, (name, (ms, bound)) in zip(axes.flat, waited.items(), strict=True):
        axis.hist(ms, bins=60, color="tab:blue")
        if bound is not None:
            axis.axvline(bound, color="black", linestyle="--")
        axis.set_xlim(0, max(bound or 0, ms.max()) * 1.05)
        axis.set_title(name, fontsize="medium")
        axis.set_ylabel("pairs")
    axes[-1, 0].set_xlabel("ms from the later row's arrival to the pair; dashed: max_latency")
    figure.savefig(file, metadata={"Date": None})
