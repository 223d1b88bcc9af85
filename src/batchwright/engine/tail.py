"""How many rows each segment gets: many, and fewer towards the end of a batch, for its last segments are what workers
wait for.

A worker that claims one of 500 rows when nothing else waits is at it while the others stand still. So the last tenth is
cut smaller and smaller: each segment a quarter of what is left, down to 50 rows. An input may be a stream, of which
nobody knows where its end is: so many of its last rows are held back until it has ended.
"""

from __future__ import annotations

TAIL_SHARE = 10
"""One row of so many is in the tail."""
TAIL_ROWS = 2_000
"""At most in a tail, however large the batch: these are held back in memory (within the 4 MiB of a segment). By then 13
segments are left, enough for as many workers; hundreds of workers share far larger batches, and their ends are short
beside the whole."""
TAIL_LEAST_ROWS = 50
"""Smaller ones would cost more in claims than they save in waiting."""
_TAIL_PARTS = 4


def held_until(first_index: int, segment_rows: int) -> int:
    """So many rows, the first of which is `first_index`, are held before a whole segment of them may go: what stays is
    the tail of a batch that would end with them."""
    share = TAIL_SHARE - 1
    return min(-(-(TAIL_SHARE * segment_rows + first_index) // share), segment_rows + TAIL_ROWS)


def last_sizes(rows: int, held: int, segment_rows: int) -> list[int]:
    """Rows of the last segments: of the `held` ones of a batch that has ended with `rows`."""
    tail = min(rows // TAIL_SHARE, TAIL_ROWS)
    least = min(TAIL_LEAST_ROWS, segment_rows)
    sizes: list[int] = []
    left = held
    while left:
        size = left - tail if left > tail else left // _TAIL_PARTS
        size = min(max(size, least), segment_rows, left)
        if left - size < least and left <= segment_rows:
            size = left
        sizes.append(size)
        left -= size
    return sizes
