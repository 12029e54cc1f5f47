"""Pack the module and one program into a wheel. Needs the standard library alone.

    python build_wheel.py VERSION PLATFORM_TAG PROGRAM OUT_DIR

A wheel is a zip with metadata and a list of digests (PyPA specification "Binary
distribution format"). Two runs on the same input give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def metadata(version: str) -> str:
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    head = {
        "Metadata-Version": "2.3",
        "Name": "dynosweep",
        "Version": version,
        "Summary": "Simulate LLM serving deployments without a GPU, and sweep over them",
        "License-Expression": "Apache-2.0",
        "Requires-Python": ">=3.10",
        "Provides-Extra": "tables",
        "Requires-Dist": 'pyarrow>=14; extra == "tables"',
        "Description-Content-Type": "text/markdown",
    }
    return "".join(f"{k}: {v}\n" for k, v in head.items()) + "\n" + readme


def build(version: str, platform: str, program: Path, out: Path) -> Path:
    info, data = f"dynosweep-{version}.dist-info", f"dynosweep-{version}.data"
    name = "dynosweep.exe" if platform.startswith("win") else "dynosweep"
    files: list[tuple[str, bytes, int]] = [
        (f"dynosweep/{path.name}", path.read_bytes(), 0o644) for path in sorted((HERE / "src/dynosweep").iterdir()) if path.is_file()
    ]
    files.append((f"{data}/scripts/{name}", program.read_bytes(), 0o755))
    for path in ("LICENSE", "NOTICE"):
        files.append((f"{info}/licenses/{path}", (HERE.parent / path).read_bytes(), 0o644))
    files.append((f"{info}/METADATA", metadata(version).encode(), 0o644))
    files.append((f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: dynosweep\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n".encode(), 0o644))
    record = "".join(f"{path},sha256={digest(content)},{len(content)}\n" for path, content, _ in files) + f"{info}/RECORD,,\n"
    files.append((f"{info}/RECORD", record.encode(), 0o644))
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"dynosweep-{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z:
        for path, content, mode in files:
            entry = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            entry.create_system = 3
            z.writestr(entry, content)
    return wheel


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    print(build(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])))
