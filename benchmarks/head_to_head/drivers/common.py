"""Common parts of the Python load drivers, from the command line to the line of JSON; driver.h is the same in C.

    run = Run.open("classic", acks=("none",))
    run.begin() ── run.advance(messages so far), run.receive(payloads) ... ── run.end() ── run.report("client 1.2")

A latency message begins with a stamp: its due time in nanoseconds and its number from 0, both int64.

Thread rule: main works. A daemon thread ends the program with an error if there is no progress for --timeout seconds.
`latency` receives in a separate thread.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

ACKS = ("none", "one", "disk")
LATE_NS = 1_000_000
START_DELAY_NS = 200_000_000
STAMP = struct.Struct("<qq")
SUB_BUCKET_BITS = 7
WATCH_INTERVAL_S = 0.25


class Failure(Exception):
    """The run cannot continue. The text is the error message."""


def bucket_of(value: int) -> int:
    """Return the bucket of a value. Buckets are log-linear: 128 from each power of two to the next."""
    shift = max(value.bit_length() - 1 - SUB_BUCKET_BITS, 0)
    return (shift << SUB_BUCKET_BITS) + (value >> shift)


def bucket_end(bucket: int) -> int:
    """Return the first value above a bucket."""
    shift = max((bucket >> SUB_BUCKET_BITS) - 1, 0)
    return (bucket - (shift << SUB_BUCKET_BITS) + 1) << shift


def cpu_seconds() -> float:
    """Return user and system time of this process, of all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Run:
    """One run of one program. Its options are attributes."""

    def __init__(self, driver: str, options: argparse.Namespace) -> None:
        self.driver = driver
        self.mode: str = options.mode
        self.host: str = options.host
        self.port: int = options.port
        self.topic: str = options.topic
        self.size: int = options.size
        self.batch: int = options.batch
        self.in_flight: int = options.in_flight
        self.ack: str = options.ack
        self.rate: float = options.rate
        self.timeout_s: float = options.timeout
        self.messages: int = round(options.rate * options.seconds) if self.mode == "latency" else options.messages
        self.warm_up = int(options.rate * options.warm_up) if self.mode == "latency" else 0
        self.total = self.warm_up + self.messages
        self.count = self.bytes = self.moved = self.received = self.sent_late = self.origin_ns = 0
        self.marks: list[tuple[float, int]] = []
        self.buckets: dict[int, int] = {}
        self._step = -(-self.messages // 100)
        self._next_mark = 1
        self._began_s = self._cpu_began_s = self.elapsed_s = self.cpu_s = 0.0

    @classmethod
    def open(cls, driver: str, acks: Sequence[str]) -> Run:
        """Start the run of the command line, with its watchdog. The first of `acks` is the default."""
        run = cls(driver, parse(driver, acks))
        threading.Thread(target=run._watch, daemon=True).start()
        return run

    @property
    def window(self) -> int:
        """The number of outstanding messages, for protocols without batches."""
        return self.batch * self.in_flight

    def begin(self) -> None:
        self._cpu_began_s = cpu_seconds()
        self._began_s = time.monotonic()

    def advance(self, count: int) -> None:
        """Record that this many messages are done, counted from the first."""
        self.count = self.moved = count
        if count >= self._next_mark:
            self.marks.append((time.monotonic() - self._began_s, count))
            self._next_mark = min(count // self._step * self._step + self._step, self.messages)
            if count >= self.messages:
                self._next_mark = sys.maxsize

    def receive(self, payloads: Sequence[bytes]) -> None:
        """Record received messages, which must all have one size. Messages after the last requested one are not
        counted."""
        payloads = payloads[: self.messages - self.count]
        if not payloads:
            return
        if self.count == 0:
            self.size = len(payloads[0])
        size = sum(map(len, payloads))
        if size != self.size * len(payloads) or max(map(len, payloads)) != self.size:
            raise Failure(f"a message after the first {self.count} does not have {self.size} bytes")
        self.bytes += size
        self.advance(self.count + len(payloads))

    def end(self) -> None:
        self.elapsed_s = time.monotonic() - self._began_s
        self.cpu_s = cpu_seconds() - self._cpu_began_s
        if self.count != self.messages:
            raise Failure(f"expected {self.messages} messages, counted {self.count}")
        if self.mode == "produce":
            self.bytes = self.messages * self.size

    def report(self, client: str) -> NoReturn:
        """Print the line of JSON and end the process, without closing the client."""
        result = {
            "driver": self.driver,
            "client": client,
            "messages": self.messages,
            "bytes": self.bytes,
            "seconds": round(self.elapsed_s, 6),
            "cpu_s": round(self.cpu_s, 6),
            "progress": [[round(elapsed_s, 6), count] for elapsed_s, count in self.marks],
        }
        if self.mode == "latency":
            result["sent_late"] = self.sent_late
            result["histogram_us"] = [
                [round(bucket_end(bucket) / 1000, 3), count] for bucket, count in sorted(self.buckets.items())
            ]
        print(json.dumps(result), flush=True)
        os._exit(0)

    def payload(self) -> bytes:
        """Return a payload of the run's size."""
        return bytes(ord("a") + i % 26 for i in range(self.size))

    # ---- latency ----------------------------------------------------------------------------------------------------

    def latency(
        self, send: Callable[[bytes], object], flush: Callable[[], object] | None, receive: Callable[[], object]
    ) -> None:
        """Run a latency test: send on schedule in this thread, and flush after all messages that were due together.

        `receive` runs in another thread until `received` is `total`. Both clients must be connected, and the receiver
        subscribed.
        """
        tail = self.payload()[STAMP.size :]
        self.origin_ns = time.monotonic_ns() + START_DELAY_NS
        receiver = threading.Thread(target=guarded, args=(self.driver, receive), daemon=True)
        receiver.start()
        number = 0
        while number < self.total:
            due_count = self._wait_until_due(number)
            while number < due_count:
                send(self._stamp(number) + tail)
                number += 1
            if flush is not None:
                flush()
        receiver.join()
        self.end()

    def receive_stamped(self, payload: bytes) -> None:
        """Record a message of a latency run. Messages must arrive complete, in order and once each."""
        now_ns = time.monotonic_ns()
        if len(payload) != self.size:
            raise Failure(f"a message has {len(payload)} bytes, not {self.size}; use a new topic")
        due_ns, number = STAMP.unpack_from(payload)
        if number != self.received:
            raise Failure(f"message {number} arrived instead of {self.received}")
        self.received = number + 1
        if number >= self.warm_up:
            bucket = bucket_of(max(now_ns - due_ns, 0))
            self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
            self.bytes += self.size
            self.advance(number - self.warm_up + 1)
        self.moved = self.received

    def _due_ns(self, number: int) -> int:
        return self.origin_ns + int(number * 1e9 / self.rate)

    def _wait_until_due(self, number: int) -> int:
        due_ns = self._due_ns(number)
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / 1e9)
        count = int((time.monotonic_ns() - self.origin_ns) * self.rate / 1e9) + 1
        return max(min(count, self.total), number + 1)

    def _stamp(self, number: int) -> bytes:
        due_ns = self._due_ns(number)
        if number == self.warm_up:
            self.begin()
        if number >= self.warm_up and time.monotonic_ns() > due_ns + LATE_NS:
            self.sent_late += 1
        return STAMP.pack(due_ns, number)

    def _watch(self) -> None:
        seen, since_s = -1, time.monotonic()
        while True:
            time.sleep(WATCH_INTERVAL_S)
            if self.moved != seen:
                seen, since_s = self.moved, time.monotonic()
            elif time.monotonic() - since_s > self.timeout_s:
                end_with(self.driver, f"no progress for {self.timeout_s:g} s after {seen} of {self.total} messages")


class Confirms:
    """Tracks which delivery tags are confirmed: singly, or all up to one, in any order."""

    def __init__(self) -> None:
        self.count = 0
        self._lowest = 1
        self._early: set[int] = set()

    def add(self, tag: int, *, multiple: bool) -> None:
        if multiple:
            self._lowest = max(self._lowest, tag + 1)
            self._early = {early for early in self._early if early > tag}
        elif tag >= self._lowest:
            self._early.add(tag)
        while self._lowest in self._early:
            self._early.remove(self._lowest)
            self._lowest += 1
        self.count = self._lowest - 1 + len(self._early)


def end_with(driver: str, sentence: str) -> NoReturn:
    """End the program with an error message and status 1, from any thread."""
    sys.stderr.write(f"{driver}: {sentence}\n")
    sys.stderr.flush()
    os._exit(1)


def guarded(driver: str, work: Callable[[], object]) -> None:
    """Run a function. Any exception ends the program with an error message."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - clients raise classes of their own, and a thread's would pass unseen
        end_with(driver, str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}")


def parse(driver: str, acks: Sequence[str]) -> argparse.Namespace:
    """Parse the command line of README.md. Errors end the program with a message and status 2."""
    parser = _Parser(prog=driver, add_help=False, allow_abbrev=False)
    parser.add_argument("mode", choices=("produce", "consume", "latency"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--ack", choices=ACKS, default=acks[0])
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--timeout", type=float, default=30)
    options = parser.parse_args()
    if options.ack not in acks:
        parser.error(f"this system does not support --ack {options.ack}")
    if options.mode == "latency":
        if options.rate <= 0 or options.seconds <= 0 or options.rate * options.seconds < 1:
            parser.error("--rate and --seconds are required and must result in at least one message")
        if options.size < STAMP.size:
            parser.error(f"--size must be at least {STAMP.size}, the size of a message's timestamp")
    elif options.messages < 1:
        parser.error("--messages is required")
    if min(options.size, options.batch, options.in_flight, options.timeout) < 1 or options.warm_up < 0:
        parser.error("--size, --batch, --in-flight and --timeout must be at least 1, --warm-up at least 0")
    return options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}\n")
        sys.exit(2)
