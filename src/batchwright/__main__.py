"""`python -m batchwright`."""

from __future__ import annotations

from batchwright.cli import main

if __name__ == "__main__":
    main()
