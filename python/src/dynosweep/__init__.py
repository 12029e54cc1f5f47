"""Simulate LLM serving deployments and sweep over them, from Python.

The package carries the dynosweep program and runs it; nothing is compiled, and no
figure is computed here.

    import dynosweep as ds

    report = ds.replay(input_tokens=2048, output_tokens=128, request_count=100, replay_concurrency=16)
    report["mean_ttft_ms"]

    results = ds.sweep("configs/agg-workers.yaml")
    results.points.to_pandas()          # a pyarrow table, one row a point and seed
    results.report()                    # what to deploy, as a mapping

Wrong input raises InputError with file and line, a run that fails raises RunError, and
Ctrl-C stops the program in order: what has finished is kept, and the same call continues.
"""

from __future__ import annotations

from ._run import DynosweepError, Fault, InputError, RunError, binary, version
from ._verbs import Progress, Results, compare, replay, sweep

__all__ = [
    "DynosweepError",
    "Fault",
    "InputError",
    "Progress",
    "Results",
    "RunError",
    "binary",
    "compare",
    "replay",
    "sweep",
    "version",
]
