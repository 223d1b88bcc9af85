"""`--via`: the batch APIs of the vendors that rows may go to, as places of their own beside them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.errors import UsageError
from batchwright.core.via import Via

MARK = "-batch"
"""After the vendor's name: what its batch API is called, in results and bills too."""


def with_batch_apis(destinations: Sequence[Destination], via: Via, asked: str) -> tuple[Destination, ...]:
    """`asked`: what was asked for, for people. Raises UsageError where rows are to go through batch APIs and nobody has
    one that is known."""
    if via is Via.LIVE:
        return tuple(destinations)
    from batchwright.vendors.batch_apis import batch_limits  # only where one is asked for

    names = {place.vendor for place in destinations}
    lacking: list[str] = []
    apis: list[Destination] = []
    for place in destinations:
        if place.unusable or place.protocol in (VendorProtocol.LOCAL, VendorProtocol.SERVICE, VendorProtocol.SIMULATED):
            continue
        api = _api_of(place, names, (via, asked))
        if batch_limits(place) is None:
            lacking.append(place.vendor)
            if via is Via.BATCH:
                apis.append(msgspec.structs.replace(api, unusable=_unknown(place.vendor)))
        else:
            apis.append(api)
    if not any(not api.unusable for api in apis):
        why = _unknown(lacking[0]) if lacking else "no vendor that is set up has one"
        raise UsageError(f"{asked} goes through a vendor's own batch API, and {why}")
    return (*destinations, *apis)


def attached(destinations: Sequence[Destination], vendor_batch_id: str) -> tuple[Destination, ...]:
    """With the one batch API among them holding that batch. Raises UsageError where there are several."""
    apis = [place.vendor for place in destinations if place.protocol is VendorProtocol.BATCH and not place.unusable]
    if len(apis) > 1:
        raise UsageError(
            f"attach: {vendor_batch_id} may be at {', '.join(apis)}: say whose it is, with --vendor NAME or --base-url"
        )
    return tuple(
        msgspec.structs.replace(place, attached=vendor_batch_id) if place.vendor == apis[0] else place
        for place in destinations
    )


def _api_of(place: Destination, taken: set[str], what: tuple[Via, str]) -> Destination:
    """`what`: as of `with_batch_apis`."""
    via, asked = what
    name = f"{place.vendor}{MARK}"
    if name in taken:
        raise UsageError(
            f"{asked}: the batch API of {place.vendor} is called {name}, and so is another vendor here; give "
            "that one another name"
        )
    return msgspec.structs.replace(
        place,
        vendor=name,
        protocol=VendorProtocol.BATCH,
        models=(),
        batch_of=place.vendor,
        live=place.protocol,
        live_too=via is Via.AUTO,
    )


def _unknown(vendor: str) -> str:
    return (
        f"no batch API of {vendor} is known: if it has one that speaks as OpenAI's does, give it a table with "
        'profile = "openai"'
    )
