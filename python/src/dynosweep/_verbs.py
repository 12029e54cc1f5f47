"""The verbs of the program as functions."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ._run import run

if TYPE_CHECKING:
    import pyarrow

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Progress:
    """How far a sweep is: points that ended, and the points of this run."""

    ended: int
    total: int
    text: str


def replay(trace: PathLike | Sequence[PathLike] = (), **flags: Any) -> dict[str, Any]:
    """Simulate one configuration and return its report, as `dynosweep replay --report-json` writes it.

    A keyword is a flag with underscores for hyphens: num_workers=4 is --num-workers 4.
    Mappings become JSON, sequences repeat the flag, True gives it alone, None leaves it out.
    """
    traces = [trace] if isinstance(trace, (str, os.PathLike)) else list(trace)
    with tempfile.TemporaryDirectory(prefix="dynosweep-") as folder:
        report = Path(folder) / "report.json"
        run(["replay", "-q", "--report-json", str(report), *_flags(flags), "--", *(os.fspath(t) for t in traces)])
        return _mapping(report.read_text(encoding="utf-8"))


def sweep(
    spec: PathLike | Mapping[str, Any],
    out: PathLike | None = None,
    *,
    progress: bool | Callable[[Progress], None] = False,
    require: Sequence[str] = (),
    **flags: Any,
) -> Results:
    """Run a grid of configurations, or continue it, and return its results.

    spec is the path of a sweep specification, or a mapping with its keys, whose paths then
    start at the working directory and which needs out. require holds assertions, such as
    "mean_ttft_ms<2000"; where one does not hold RunError is raised, with the results kept.
    progress is True to print, or a function that gets a Progress as points end; other
    keywords are flags: jobs=8, limit=100, retry_failed=True, capture_requests=True,
    point_timeout="10m".
    """
    with _specification(spec, out) as path:
        args = ["sweep", *_flags({**flags, "assert": list(require)})]
        if out is not None:
            args += ["--out", os.fspath(out)]
        text = run([*args, "--", path], _follow(progress))
        match = re.search(r"; results in (.+)$", text, re.MULTILINE)
        folder = os.fspath(out) if out is not None else match[1] if match else ""
    return Results(folder)


@contextmanager
def _specification(spec: PathLike | Mapping[str, Any], out: PathLike | None) -> Iterator[str]:
    """The path of a specification; a mapping is written beside where its paths start."""
    if not isinstance(spec, Mapping):
        yield os.fspath(spec)
        return
    if out is None:
        raise TypeError("sweep: a specification given as a mapping has no file name: say where the results go with out=")
    handle, path = tempfile.mkstemp(prefix=".dynosweep-", suffix=".yaml", dir=os.getcwd())
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"name": Path(out).name or "sweep", **spec}, file, indent=2)
        yield path
    finally:
        os.unlink(path)


_COUNT = re.compile(r"^(?P<ended>[\d,]+)/(?P<total>[\d,]+) points: ")


def _follow(progress: bool | Callable[[Progress], None]) -> Callable[[str], bool]:
    def each_line(line: str) -> bool:
        count = _COUNT.match(line)
        if not count:
            return False
        if callable(progress):
            progress(Progress(int(count["ended"].replace(",", "")), int(count["total"].replace(",", "")), line))
        elif progress:
            print(line)
        return True

    return each_line


def compare(a: PathLike | Results, b: PathLike | Results, **flags: Any) -> dict[str, Any]:
    """What differs between two results by more than the noise; differences are b against a."""
    sides = [s.folder if isinstance(s, Results) else os.fspath(s) for s in (a, b)]
    return _mapping(run(["compare", "--format", "json", *_flags(flags), "--", *sides]))


class Results:
    """A results directory. Tables are read when asked for, and need pyarrow."""

    def __init__(self, folder: PathLike) -> None:
        self.folder = os.fspath(folder)

    def __repr__(self) -> str:
        return f"Results({self.folder!r})"

    @property
    def points(self) -> pyarrow.Table:
        """One row a point and seed."""
        return self._table("points")

    @property
    def ticks(self) -> pyarrow.Table:
        """One row a Planner tick; FileNotFoundError where no point has a Planner."""
        return self._table("ticks")

    @property
    def scaling_events(self) -> pyarrow.Table:
        """One row a change of a pool's size."""
        return self._table("scaling_events")

    @property
    def requests(self) -> pyarrow.Table:
        """One row a request, with capture_requests=True."""
        return self._table("requests")

    @property
    def manifest(self) -> dict[str, Any]:
        """Version, machine, times, and how many points are done, failed, skipped and open."""
        return _mapping((Path(self.folder) / "manifest.json").read_text(encoding="utf-8"))

    def report(self, page: PathLike | None = None, **flags: Any) -> dict[str, Any]:
        """What to deploy and why, as a mapping; the HTML page goes to page, by default into the folder.

        Keywords are flags: sla="ttft_ms=1000,itl_ms=50", price=["h200_sxm=3.5"], attainment=0.9.
        """
        if page is not None:
            flags["page"] = os.fspath(page)
        return _mapping(run(["report", "--format", "json", *_flags(flags), "--", self.folder]))

    def _table(self, name: str) -> pyarrow.Table:
        import pyarrow.parquet

        return pyarrow.parquet.read_table(Path(self.folder) / f"{name}.parquet")


def _mapping(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value


def _flags(flags: Mapping[str, Any]) -> list[str]:
    out: list[str] = []
    for key, value in flags.items():
        name = "--" + key.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            out.append(name)
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            out += [name, json.dumps(item) if isinstance(item, Mapping) else os.fspath(item) if isinstance(item, os.PathLike) else str(item)]
    return out
