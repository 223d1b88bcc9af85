"""Bytes of blobs from wherever they lie, and to where they belong: in the table, or in an object store beside it.

No object is read or written while a transaction is open. What is written is put before it (`put_all`). Within it a
`Reader` gives what is in the table, and what was fetched before; for the rest it raises `Outside`, which ends the
transaction: then the objects are fetched and all of it is done again (`look`, `transact`). Without an object store none
of this happens: everything is in the table.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection

from batchwright.core.errors import BodyLost, ObjectsAway, StoreError
from batchwright.ports.blobs import Objects
from batchwright.store.blobs import Span
from batchwright.store.connections import Connections

A = TypeVar("A")
T = TypeVar("T")

INLINE_BYTES = 64 * 1024
"""Results, pieces, and the inputs of one transaction together: below this they stay in the table, for an object costs a
request each way, which is more than its bytes cost there."""
WHOLE_BYTES = 1024 * 1024
"""Objects up to this are fetched whole and kept for a while: a checkpoint's object holds frames of segments that are
read one after another. Of a larger one the ranges that are asked for."""
CACHE_BYTES = 16 * 1024 * 1024
"""Of objects that were fetched whole."""
REQUESTS_AT_ONCE = 8
ROUNDS = 32
"""So often a transaction that writes is begun anew because it needs one more object; a claim that meets other segments
each time asks again at the next checkpoint."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")
"""What a store might write otherwise than it was told."""


class Outside(Exception):
    """Raised within a transaction: these bytes are needed and lie in the object store."""

    def __init__(self, spans: Sequence[Span]) -> None:
        super().__init__(f"{len(spans)} bodies lie in the object store")
        self.spans = tuple(spans)


class Reader:
    """What one operation has fetched so far. `goes_outside`: there is an object store."""

    def __init__(self, *, goes_outside: bool) -> None:
        self.goes_outside = goes_outside
        self.gone: set[str] = set()
        self.lost: dict[str, str] = {}
        """Objects that are gone for good or damaged, and what is to be said of each."""
        self._have: dict[Span, bytes] = {}

    def need(self, found: Iterable[bytes | Span]) -> None:
        """Raises Outside for those that were not fetched yet, all at once; BodyLost for what cannot be."""
        lacking = [each for each in found if isinstance(each, Span) and each not in self._have]
        for each in lacking:
            if each.object in self.lost:
                raise BodyLost(self.lost[each.object])
        if lacking:
            raise Outside(lacking)

    def bytes_of(self, found: bytes | Span) -> bytes:
        """Raises Outside, BodyLost."""
        if not isinstance(found, Span):
            return found
        self.need((found,))
        return self._have[found]

    def keep(self, span: Span, data: bytes) -> None:
        self._have[span] = data


class Bodies:
    def __init__(
        self,
        connections: Connections,
        objects: Objects | None = None,
        *,
        under: str = "",
        writer: str = "",
        settle: Callable[[], str] = str,
        tied_under: Callable[[], str] = str,
    ) -> None:
        """`under`: what the names of this store's objects begin with; no other store has it. `writer`: used by no other
        process, so that no name is used twice. `settle`: ties this store to these objects, before any is put, and
        returns what their names begin with; raises StoreError where it is tied to others. `tied_under`: what they begin
        with where it is tied to these, else empty; ties nothing."""
        self.connections = connections
        self.objects = objects
        self.under = under
        self._writer = writer
        self._settle = settle
        self._tied_under = tied_under
        self.is_tied = False
        """The store was tied to these objects when this process last asked."""
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached = 0
        self._pool: ThreadPoolExecutor | None = None
        self._probed = False

    # reading -----------------------------------------------------------------------------------------------------

    def look(self, work: Callable[[Connection, Reader], T]) -> T:
        """As `Connections.look`, with what it needs from outside. Raises BodyLost."""
        reader = self._reader()
        while True:
            try:
                with self.forgetting():
                    return self.connections.look(lambda connection: work(connection, reader))
            except Outside as lacking:
                self._fetch(reader, lacking.spans)

    def transact(self, work: Callable[[Connection, Reader], T]) -> T:
        """As `Connections.transact`, with what it needs from outside: nothing of it is written until all is there.
        Raises BodyLost."""
        reader = self._reader()
        for _ in range(ROUNDS):
            try:
                with self.forgetting():
                    return self.connections.transact(lambda connection: work(connection, reader))
            except Outside as lacking:
                self._fetch(reader, lacking.spans)
        raise ObjectsAway(f"{self._named()}: a transaction needed other objects {ROUNDS} times; nothing was written.")

    def _reader(self) -> Reader:
        return Reader(goes_outside=self.objects is not None)

    def _fetch(self, reader: Reader, spans: Sequence[Span]) -> None:
        by_object: dict[str, list[Span]] = {}
        for span in dict.fromkeys(spans):
            by_object.setdefault(span.object, []).append(span)
        for found, fetched in zip(by_object.values(), self._each(self._read, list(by_object.values())), strict=True):
            name = found[0].object
            if isinstance(fetched, BodyLost):
                reader.lost[name] = str(fetched)
            elif fetched is not None:
                for span, data in zip(found, fetched, strict=True):
                    reader.keep(span, data)
            elif name in reader.gone:
                self.tie()  # else it is in the objects of another process
                reader.lost[name] = (
                    f"{self._named()} has no object {name}, which holds answers or inputs of a batch here. "
                    "Was it deleted there, by hand or by a rule of the bucket? Restore it from a version or a copy."
                )
            else:
                # Superseded or deleted since it was named: another look names what is there instead.
                reader.gone.add(name)

    def _read(self, spans: list[Span]) -> list[bytes] | BodyLost | None:
        """Of one object; None: it is not there."""
        if self.objects is None:
            raise StoreError(
                f"{self.connections.name} has bodies in an object store, and none was named: another process has put "
                "them there since this one began. Begin it again with the same --blobs."
            )
        name, size = spans[0].object, spans[0].size
        try:
            if size > WHOLE_BYTES:
                return self.objects.get_ranges(name, [(span.offset, span.length) for span in spans])
            with self._lock:
                whole = self._cache.get(name)
                if whole is not None:
                    self._cache.move_to_end(name)
            if whole is None:
                whole = self.objects.get(name)
                if len(whole) != size:
                    return BodyLost(
                        f"{self._named()}: the object {name} has {len(whole):,} bytes, {size:,} were written. Restore "
                        "it from a version or a copy."
                    )
                self._remember(name, whole)
        except KeyError:
            return None
        except BodyLost as lost:
            return lost
        return [whole[span.offset : span.offset + span.length] for span in spans]

    def _remember(self, name: str, whole: bytes) -> None:
        with self._lock:
            if name not in self._cache:
                self._cache[name] = whole
                self._cached += len(whole)
            while self._cached > CACHE_BYTES:
                self._cached -= len(self._cache.popitem(last=False)[1])

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """What is found damaged within may be restored later, and is then to be fetched again."""
        try:
            yield
        except BodyLost:
            with self._lock:
                self._cache.clear()
                self._cached = 0
            raise

    def probe(self) -> None:
        """Before anything is sent or taken in, once: raises StoreError where the object store cannot be used."""
        if self.objects is not None and not self._probed:
            self.objects.probe(f"{self.under}/probe/{self._writer}")
            self._probed = True

    def mark(self) -> str:
        """What the names of this store's objects begin with, for good; empty without an object store. Raises
        StoreError where the store cannot be tied to it."""
        if self.objects is not None:
            self.probe()
            self.tie()
        return self.under

    # writing -----------------------------------------------------------------------------------------------------

    def put_all(self, items: Sequence[tuple[str, bytes]], *, least_bytes: int = -1) -> list[Span | None]:
        """Each item (key, bytes) as an object of its own, put and durable: where it lies; None for one that belongs
        into the table, as what is below `least_bytes` does (-1: INLINE_BYTES). Objects that no transaction comes to
        name are swept."""
        least_bytes = INLINE_BYTES if least_bytes < 0 else least_bytes
        if self.objects is None or all(len(data) < least_bytes for _, data in items):
            return [None] * len(items)
        self.tie()
        names = [self._new_name(key) if len(data) >= least_bytes else "" for key, data in items]
        self._each(self._put, [(name, item[1]) for name, item in zip(names, items, strict=True) if name])
        sizes = [len(data) for _, data in items]
        return [Span(name, 0, size, size) if name else None for name, size in zip(names, sizes, strict=True)]

    def put_together(self, items: Sequence[tuple[str, bytes]]) -> dict[str, Span]:
        """All items (key, bytes) as one object, put and durable, named after the first: where each lies, by key. Empty:
        they are so small together that they belong into the table."""
        whole = b"".join(data for _, data in items) if self.objects is not None else b""
        (outer,) = self.put_all([(items[0][0], whole)]) if items else (None,)
        if outer is None:
            return {}
        ends = itertools.accumulate(len(data) for _, data in items)
        return {
            key: Span(outer.object, end - len(data), len(data), outer.size)
            for (key, data), end in zip(items, ends, strict=True)
        }

    def tie(self) -> None:
        """Before every put: while nothing lies there, another process may tie the store elsewhere. Raises StoreError
        where one has, and put something there."""
        self.under = self._settle()
        self.is_tied = True

    def sees_tie(self) -> bool:
        """Whether the store is tied to these objects, by another process perhaps, since this one began."""
        if not self.is_tied and (under := self._tied_under()):
            self.under, self.is_tied = under, True
        return self.is_tied

    def _put(self, item: tuple[str, bytes]) -> None:
        assert self.objects is not None, "only what has a name is put"
        self.objects.put(*item)

    def _new_name(self, key: str) -> str:
        parts = [_NO_NAME.sub("_", part).strip(".") or "_" for part in key.split("/")]
        return "/".join([self.under, *parts, f"{self._writer}-{next(self._numbers)}"])

    def _each(self, work: Callable[[A], T], items: Sequence[A]) -> list[T]:
        """Some at a time; all have ended when this returns or raises the first error."""
        if len(items) <= 1:
            return [work(item) for item in items]
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="objects")
        running = [self._pool.submit(work, item) for item in items]
        errors = [error for future in running if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in running]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _named(self) -> str:
        return f"The object store {self.objects.url if self.objects is not None else ''}"
