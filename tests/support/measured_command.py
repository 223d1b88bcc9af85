"""The command as it is; at its end the most memory its process had (MiB) is written to a file. Linux alone.

python -m support.measured_command FILE run rows.jsonl ...
"""

from __future__ import annotations

import sys
from pathlib import Path


def peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def main() -> None:
    place, *command = sys.argv[1:]
    sys.argv = ["batchwright", *command]
    from batchwright.cli import main as batchwright

    try:
        batchwright()
    finally:
        Path(place).write_text(str(peak_mib()))


if __name__ == "__main__":
    main()
