"""The command as it is, on a disk that is full for as long as a file is there: SQLite finds no room for another page.

python -m support.small_disk FULL run rows.jsonl -o out.jsonl ...
"""

from __future__ import annotations

import sys
from pathlib import Path

from sqlalchemy import Connection, Engine, event

MOST_PAGES = 2**31 - 2


def _bound(full: Path) -> None:
    def bound(connection: Connection) -> None:
        # One page: SQLite takes the file's size of now, and no page more.
        connection.exec_driver_sql(f"PRAGMA max_page_count = {1 if full.exists() else MOST_PAGES}")

    event.listen(Engine, "begin", bound)


if __name__ == "__main__":
    from batchwright.cli import main

    _bound(Path(sys.argv.pop(1)))
    main()
