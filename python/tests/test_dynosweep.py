"""The module against the real program: `scripts/python-tests` installs the wheel and runs this."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import dynosweep as ds

SPEC = {
    "workload": {"synthetic": {"input_tokens": 256, "output_tokens": 16, "requests": 20, "concurrency": 4}},
    "engine": {"backend": "vllm", "block_size": 64, "num_gpu_blocks": 1000},
    "topology": {"mode": "aggregated", "workers": [1, 2]},
    "router": {"mode": "round_robin"},
    "timing": {"type": "fixed", "prefill_ms": 10, "decode_ms": [1, 2]},
    "sla": {"ttft_ms": 1000, "itl_ms": 50},
}


def test_replay_returns_the_report() -> None:
    report = ds.replay(input_tokens=64, output_tokens=4, request_count=2, replay_concurrency=1,
                       extra_engine_args={"timing_model": {"type": "fixed", "prefill_ms": 10, "decode_ms": 2}})
    assert report["completed_requests"] == 2
    assert report["mean_itl_ms"] == 2.0


def test_sweep_gives_tables_for_pandas_and_duckdb(tmp_path: Path) -> None:
    seen: list[ds.Progress] = []
    results = ds.sweep(SPEC, tmp_path / "grid", progress=seen.append, jobs=1)
    frame = results.points.to_pandas()
    assert len(frame) == 4 and set(frame["topology.workers"]) == {1, 2}
    assert (frame["status"] == "done").all()
    assert results.manifest["points"]["done"] == 4
    assert seen and seen[-1].ended == seen[-1].total == 4
    points = results.points  # noqa: F841, duckdb finds it by name
    assert duckdb.sql('select max("mean_itl_ms") from points').fetchall() == [(2.0,)]
    assert results.report(page="none")["loads"][0]["deploy"]
    with pytest.raises(FileNotFoundError):
        results.ticks
    assert not list(Path.cwd().glob(".dynosweep-*"))


def test_two_results_compare(tmp_path: Path) -> None:
    a, b = ds.sweep(SPEC, tmp_path / "a"), ds.sweep(SPEC, tmp_path / "b")
    assert isinstance(ds.compare(a, b), dict)


def test_errors_have_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: bad\nworkload:\n  synthetic: {input_tokns: 5}\n")
    with pytest.raises(ds.InputError) as caught:
        ds.sweep(path, tmp_path / "bad")
    assert caught.value.file == str(path)
    assert [f for f in caught.value.faults if f.line == 3 and "input_tokns" in f.text]
    assert "input_tokens" in str(caught.value)
    with pytest.raises(ds.InputError):
        ds.replay(input_tokens=-1)
    with pytest.raises(TypeError):
        ds.sweep(SPEC)


def test_an_assertion_that_does_not_hold_keeps_the_results(tmp_path: Path) -> None:
    with pytest.raises(ds.RunError):
        ds.sweep(SPEC, tmp_path / "strict", require=["mean_itl_ms<1.5"])
    assert len(ds.Results(tmp_path / "strict").points) == 4


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
def test_interrupt_keeps_what_has_finished(tmp_path: Path) -> None:
    code = (
        "import dynosweep as ds\n"
        "spec = " + repr({**SPEC, "workload": {"synthetic": {"input_tokens": 4000, "output_tokens": 400, "requests": 20000, "concurrency": 64}},
                          "timing": {"type": "fixed", "prefill_ms": list(range(1, 40)), "decode_ms": 1}}) + "\n"
        "try:\n    ds.sweep(spec, " + repr(str(tmp_path / "long")) + ", jobs=1, progress=lambda p: print('ended', flush=True))\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "ended"
    child.send_signal(signal.SIGINT)
    rest, _ = child.communicate(timeout=60)
    assert rest.strip().endswith("interrupted")
    done = ds.Results(tmp_path / "long").manifest["points"]["done"]
    assert 1 <= done < 78
