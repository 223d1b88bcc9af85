"""The closed table of settings: one line each, the same name in every place.

A setting `base_url` is `--base-url` on the command line, `BATCHWRIGHT_BASE_URL` in the environment and in `.env`, and
`base_url` in `batchwright.toml` and the user file. Whatever is in none of these tables is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from batchwright.core.doubt import OnUncertain
from batchwright.core.durations import read_duration
from batchwright.core.money import read_amount
from batchwright.runner.progress import ProgressKind
from batchwright.settings import values

PREFIX = "BATCHWRIGHT_"


class Transport(StrEnum):
    """How requests leave this machine."""

    AUTO = "auto"
    """`own`, unless a proxy is set: then `curl`."""
    OWN = "own"
    CURL = "curl"


class LogForm(StrEnum):
    """What `serve` tells of requests."""

    PLAIN = "plain"
    JSON = "json"
    """One object a line, sentences too."""
    QUIET = "quiet"
    """No line a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    read: Callable[[object], object]
    meaning: str
    in_files: bool = True
    """False: only in the environment."""
    in_projects: bool = True
    """False: in no file that may have come with a project, which is `.env` and batchwright.toml."""
    is_path: bool = False
    """A relative one is taken from where it was written: the file's folder, else the current one."""
    fallback: str = ""
    """Another variable that is read, in the same place, when `BATCHWRIGHT_...` is not set there."""


SETTINGS: dict[str, Setting] = {
    "home": Setting(
        read=values.read_text, meaning="folder of the state", in_files=False, in_projects=False, is_path=True
    ),
    "database": Setting(
        read=values.read_database, meaning="a PostgreSQL database in place of the folder's file", in_projects=False
    ),
    "blobs": Setting(
        read=values.read_blobs,
        meaning="an object store for larger bodies: s3://, gs://, az://, file://",
        in_projects=False,
    ),
    "blobs_endpoint": Setting(
        read=values.read_endpoint,
        meaning="where S3 is, if not at Amazon; also of s3:// inputs and outputs",
        in_projects=False,
    ),
    "blobs_region": Setting(read=values.read_region, meaning="its region, if AWS_REGION is not set", in_projects=False),
    "blobs_virtual_host": Setting(
        read=values.read_boolean, meaning="S3 buckets are asked for by host, not by path", in_projects=False
    ),
    "blobs_encryption": Setting(
        read=values.read_encryption,
        meaning="how S3 encrypts what is put: AES256, aws:kms or aws:kms:KEY",
        in_projects=False,
    ),
    "model": Setting(read=values.read_text, meaning="model of rows that name none"),
    "base_url": Setting(read=values.read_base_url, meaning="endpoint of rows", fallback="OPENAI_BASE_URL"),
    "api_key_env": Setting(read=values.read_variable_name, meaning="name of the variable that holds its key"),
    "vendor": Setting(read=values.read_vendor_name, meaning="the named vendor that gets all rows"),
    "gguf": Setting(read=values.read_text, meaning="model file of the local server", is_path=True),
    "concurrency": Setting(read=values.read_count, meaning="rows in flight a lane, at most"),
    "rpm": Setting(read=values.read_count, meaning="requests a minute and lane, at most"),
    "tpm": Setting(read=values.read_count, meaning="tokens a minute and lane, at most"),
    "timeout": Setting(read=read_duration, meaning="total time of one attempt"),
    "max_attempts": Setting(read=values.read_count, meaning="attempts a row of `run`, at most"),
    "max_cost": Setting(read=read_amount, meaning="cap of the cost of a batch of `run`, in USD"),
    "deadline": Setting(read=read_duration, meaning="time after which a batch of `run` expires"),
    "on_uncertain": Setting(read=values.choice_of(OnUncertain), meaning="what happens to rows of `run` in doubt"),
    "gate": Setting(read=values.read_boolean, meaning="`run` pauses when the first rows all fail alike"),
    "prices": Setting(read=values.read_text, meaning="your price table (TOML)", is_path=True),
    "transport": Setting(read=values.choice_of(Transport), meaning="how requests leave this machine"),
    "progress": Setting(read=values.choice_of(ProgressKind), meaning="how progress is shown"),
    "checkpoint_interval": Setting(read=read_duration, meaning="least time between two checkpoints"),
    "lease": Setting(read=read_duration, meaning="how long a silent worker keeps its segments"),
    "heartbeat": Setting(read=read_duration, meaning="how often a worker renews its lease"),
    "webhook_allow": Setting(
        read=values.read_targets, meaning="hosts and networks that webhooks may lead to beside the public internet"
    ),
    "grace": Setting(read=read_duration, meaning="how long rows in flight may finish after a stop"),
    "processes": Setting(read=values.read_count, meaning="processes that `work` has for its workers"),
    "ray": Setting(
        read=values.read_cluster, meaning="the Ray cluster that hosts the workers of `work`", in_projects=False
    ),
    "ray_min": Setting(read=values.read_count, meaning="actors on it, at least"),
    "ray_max": Setting(read=values.read_count, meaning="actors on it, at most"),
    "ray_cpus": Setting(read=values.read_share, meaning="CPUs of the cluster that an actor takes up"),
    "host": Setting(read=values.read_host, meaning="address that `serve` listens at"),
    "port": Setting(read=values.read_port, meaning="its port; 0: any free one"),
    "log": Setting(read=values.choice_of(LogForm), meaning="how `serve` tells of requests"),
    "open_metrics": Setting(read=values.read_boolean, meaning="`/metrics` asks for no key"),
    "retention": Setting(read=values.read_retention, meaning="`serve` deletes batches that ended longer ago"),
    "ceiling_rows": Setting(read=values.read_count, meaning="rows of a batch over HTTP, at most"),
    "ceiling_body": Setting(read=values.read_size, meaning="a submit's JSON body, at most"),
    "ceiling_stream": Setting(read=values.read_size, meaning="a body that is taken in as it arrives, at most"),
    "ceiling_row": Setting(read=values.read_size, meaning="one row over HTTP, at most"),
    "ceiling_export": Setting(read=values.read_size, meaning="an export within its envelope, at most"),
}

VENDOR_SETTINGS: dict[str, Callable[[object], object]] = {
    "base_url": values.read_base_url,
    "api_key_env": values.read_variable_name,
    "models": values.read_models,
    "rpm": values.read_count,
    "tpm": values.read_count,
    "concurrency": values.read_count,
    "profile": values.read_vendor_name,
    "region": values.read_vendor_name,
    "protocol": values.read_protocol,
}
"""What a table `[vendors.NAME]` may hold. `base_url` must be there."""

KEY_VARIABLES = (PREFIX + "API_KEY", "OPENAI_API_KEY")
"""Where the key of the unnamed endpoint is looked for when no `api_key_env` names another, in each place in this order.

A vendor's own variable (`GROQ_API_KEY`, ...) is only read where it is named.
"""
OTHER_VARIABLES = frozenset(PREFIX + name for name in ("API_KEY", "DEBUG", "MODEL_FILE", "SERVICE_KEY"))
"""Variables with our prefix that are no settings (MODEL_FILE: the default model's file, `vendors.model_files`)."""


def variable_of(name: str) -> str:
    return PREFIX + name.upper()


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")
