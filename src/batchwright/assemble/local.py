"""Whether the local model can run on this machine: told before a row is sent there."""

from __future__ import annotations

from pathlib import Path

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.routes import LOCAL
from batchwright.settings import Settings


def local_problem_of(settings: Settings, place: Destination) -> str:
    """Why rows for this `local` destination cannot be answered here, with what to do; empty: they can. Reads the
    default model's file whole the first time."""
    from batchwright.vendors.local_model import local_problem  # only where it is asked for

    file = Path(place.model_file) if place.model_file else None
    return local_problem(file, environ=settings.process_environment(), cache=settings.cache_dir)


def has_local(settings: Settings) -> bool:
    """Whether rows may name the local model: with the file that the settings give it, if they do."""
    place = next((place for place in settings.destinations if place.vendor == LOCAL.vendor), LOCAL)
    return place.protocol is VendorProtocol.LOCAL and not place.unusable and not local_problem_of(settings, place)
