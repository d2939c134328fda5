"""Registries for tests: one in memory, one client that needs none, and the process that `kafkalite registry` is."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
from pathlib import Path

from kafkalite.avro.client import SCHEMA_NOT_FOUND, RegisteredSchema, RegistryRefused
from kafkalite.avro.schema import Schema, parse
from kafkalite.schema_registry.records import TopicRecord, read
from kafkalite.schema_registry.state import RegistryState
from tests.kit.processes.broker import READY_TIMEOUT_S, REPOSITORY, STOP_TIMEOUT_S, wait_until

JSON = "application/vnd.schemaregistry.v1+json"


class MemoryStore:
    """A store without a topic: each write is applied at once, and kept."""

    def __init__(self, records: list[TopicRecord] = ()) -> None:
        self.state = RegistryState()
        self.log: list[TopicRecord] = []
        self.refresh_count = 0
        for record in records:
            self.append(record)

    def append(self, record: TopicRecord) -> None:
        self.log.append(record)
        assert self.state.apply(read(record.key, record.value)), f"refused: {record}"

    def read(self, look):
        return look(self.state)

    def write(self, decide):
        records, result = decide(self.state)
        for record in records:
            self.append(record)
        return result

    def refresh(self) -> None:
        self.refresh_count += 1

    def compacted(self) -> MemoryStore:
        """Return a store as compaction leaves it: the newest record of each key, no tombstones."""
        newest = {record.key: number for number, record in enumerate(self.log)}
        kept = [record for number, record in enumerate(self.log) if newest[record.key] == number]
        return MemoryStore([record for record in kept if record.value is not None])


class FixedRegistry:
    """Ids and their schemas, as a RegistryClient shows them."""

    def __init__(self, schemas: dict[int, str]) -> None:
        self.schemas = {schema_id: parse(text) for schema_id, text in schemas.items()}
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> Schema:
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            raise RegistryRefused(404, SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return self.schemas[schema_id]

    def latest(self, subject: str) -> RegisteredSchema:
        schema_id = max(self.schemas)
        return RegisteredSchema(schema_id, schema_id, self.schemas[schema_id])

    def register(self, subject: str, schema: str, references=()) -> int:
        text = parse(schema).text
        for schema_id, known in self.schemas.items():
            if known.text == text:
                return schema_id
        schema_id = max(self.schemas, default=0) + 1
        self.schemas[schema_id] = parse(schema)
        return schema_id

    look_up = register


class RegistryProcess:
    """A separate process of `kafkalite registry`."""

    def __init__(self, directory: Path, bootstrap: str, *arguments: str) -> None:
        self.directory = directory
        self.command = [sys.executable, "-m", "kafkalite", "registry", "--bootstrap-server", bootstrap, *arguments]
        self.process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def log(self) -> str:
        return (self.directory / "registry.log").read_text(errors="replace")

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        port = self.address.rpartition(":")[2] or "0"
        with (self.directory / "registry.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "--port", port, "--ready-file", str(ready)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            )
        wait_until(
            lambda: ready.exists() or self.process.poll() is not None, READY_TIMEOUT_S, "the registry's ready file"
        )
        assert ready.exists(), self.log()
        self.address = ready.read_text().strip()

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


def call(address: str, method: str, path: str, body: object = None, headers: dict[str, str] | None = None):
    """One request: status, JSON (or text), headers."""
    host, _, port = address.rpartition(":")
    with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=60)) as connection:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": JSON} if raw is not None else {}
        connection.request(method, path, raw, {**sent, **(headers or {})})
        response = connection.getresponse()
        text = response.read()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = text.decode()
        return response.status, answer, dict(response.getheaders())
