"""Find the program, run it, and turn its exit codes into exceptions."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

_NAME = "dynosweep.exe" if os.name == "nt" else "dynosweep"


class DynosweepError(Exception):
    """The program ended with an error; `stderr` is everything it said."""

    def __init__(self, message: str, stderr: str = "", stdout: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr
        self.stdout = stdout


class RunError(DynosweepError):
    """It ran and failed: a point failed, an assertion does not hold, the disk is full."""


class Fault(NamedTuple):
    """One thing that is wrong; file and line are None where it stands in no file."""

    file: str | None
    line: int | None
    text: str


class InputError(DynosweepError, ValueError):
    """The input is wrong. `faults` holds all that is, `file` and `line` say where the first stands."""

    def __init__(self, message: str, stderr: str = "", stdout: str = "") -> None:
        super().__init__(message, stderr, stdout)
        places = [(re.match(r"^(?P<file>.+?):(?P<line>\d+): ", text), text) for text in message.splitlines()]
        self.faults = [Fault(at["file"], int(at["line"]), text[at.end() :]) if at else Fault(None, None, text) for at, text in places]
        first = next((f for f in self.faults if f.file), Fault(None, None, message))
        self.file, self.line = first.file, first.line


def binary() -> str:
    """The path of the program: $DYNOSWEEP_BINARY, else the one of this installation, else the one on PATH."""
    if chosen := os.environ.get("DYNOSWEEP_BINARY"):
        return chosen
    user = sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    for folder in (sysconfig.get_path("scripts"), user, str(Path(sys.prefix) / "bin")):
        path = Path(folder) / _NAME
        if path.is_file():
            return str(path)
    if found := shutil.which(_NAME):
        return found
    raise FileNotFoundError(f"no {_NAME} beside this installation nor on PATH: install the wheel again, or set DYNOSWEEP_BINARY")


def version() -> str:
    """What `dynosweep version` prints."""
    return subprocess.run([binary(), "version"], check=True, capture_output=True, text=True).stdout.strip()


def run(args: Sequence[str], each_line: Callable[[str], bool] | None = None, cwd: str | None = None) -> str:
    """Run the program and return its standard output.

    each_line is called with every line of standard error as it comes, and says whether it
    has dealt with it; the other lines make the message of an exception. An exception that
    it raises stops the program.
    """
    process = subprocess.Popen([binary(), *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, encoding="utf-8", errors="replace", cwd=cwd)
    assert process.stdout is not None and process.stderr is not None
    out: list[str] = []
    reader = threading.Thread(target=lambda pipe: out.append(pipe.read()), args=(process.stdout,), daemon=True)
    reader.start()
    said: list[str] = []
    try:
        for line in process.stderr:
            line = line.rstrip("\n")
            if each_line is None or not each_line(line):
                said.append(line)
        code = process.wait()
    except BaseException:
        _stop(process)
        raise
    finally:
        reader.join()
        process.stdout.close()
        process.stderr.close()
    stdout, stderr = "".join(out), "\n".join(said)
    if code == 0:
        for line in said:
            print(line, file=sys.stderr)
        return stdout
    message = stderr.strip() or stdout.strip() or f"dynosweep ended with exit code {code}"
    if code in (130, -signal.SIGINT):
        raise KeyboardInterrupt(message)
    raise (InputError if code == 2 else RunError)(message, stderr, stdout)


def _stop(process: subprocess.Popen[str]) -> None:
    """Ask the program to end in order, and wait until finished work is on disk."""
    if process.poll() is None:
        if os.name == "nt":
            process.terminate()
        else:
            process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=30)
    except (subprocess.TimeoutExpired, ValueError):
        process.kill()
        process.wait()
