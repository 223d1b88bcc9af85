"""An S3 server of the test session's own, on loopback, and a prefix of its bucket for each test."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from batchwright.store.object_store import ObjectPlace, open_objects
from batchwright.store.open import Outlying

BUCKET = "bodies"
KEYS = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}
"""moto takes any."""
_names = itertools.count(1)


class ObjectServer:
    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.port = port
        self.endpoint = f"http://{host}:{port}"
        import boto3  # type: ignore[import-untyped]  # it has no types

        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=KEYS["AWS_REGION"],
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        self.client.create_bucket(Bucket=BUCKET)

    def url(self) -> str:
        """Of a new place."""
        return f"s3://{BUCKET}/place{next(_names)}"

    def place(self, url: str = "", endpoint: str = "") -> ObjectPlace:
        return ObjectPlace(url=url or self.url(), endpoint=endpoint or self.endpoint)

    def names(self, url: str) -> list[str]:
        """The objects below a URL, without its own prefix."""
        prefix = url.removeprefix(f"s3://{BUCKET}/") + "/"
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"].removeprefix(prefix) for page in pages for each in page.get("Contents", ())]

    def put(self, url: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=url.removeprefix(f"s3://{BUCKET}/"), Body=data)

    def get(self, url: str) -> bytes:
        found = self.client.get_object(Bucket=BUCKET, Key=url.removeprefix(f"s3://{BUCKET}/"))
        data: bytes = found["Body"].read()
        return data

    def close(self) -> None:
        self._server.stop()


def outlying(place: ObjectPlace) -> Outlying:
    """As a new process opens it."""
    return Outlying(objects=open_objects(place), writer=f"w{next(_names)}", state=f"state{next(_names)}")


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    before = {name: os.environ.get(name) for name in KEYS}
    os.environ.update(KEYS)
    server = ObjectServer()
    yield server
    server.close()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
