"""A world for the core of kafkalite.failures: a cluster in memory, members that die after any step, its own clock.

Everything is drawn from a seed. A member carries out the core's actions one by one, and each has steps (records
written, transaction ended, handler called ...); a counter of steps may end the member between any two of them. Most
members read, handle and decide on between the steps of a transaction. What
it had not committed is undone, its partitions go to others, or to its next life.

What must hold in the end, whatever died: every record is processed, dead, ignored or skipped; a letter is there once;
no letter ran before it was due; with order by key the first successes of a key are in order, and their output,
too; nothing of a key runs while it is held for a dead record; outputs of a transactional handler are there once; and
the ledger says so. When nothing else happens, an operator releases held keys: redrives a letter, or resolves it.

In every third scenario there is a dead-letter handler: it must have each letter, more than once only after a death or
a rebalance, and what it sends must be there once. A letter that ends the process each time is given up. In every fifth
scenario the handler takes lists, and what it sends for a list must be there for all of its records, or for none.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from kafkalite.failures.events import (
    Alarm,
    Arrival,
    Assigned,
    Commit,
    CommitEnded,
    Event,
    Failure,
    FailureKind,
    Fetched,
    Finished,
    Letter,
    Lost,
    Message,
    Outcome,
    Output,
    Pause,
    Put,
    Released,
    Resume,
    Revoked,
    Revoking,
    Run,
    RunEnded,
    Start,
    Stop,
    Tick,
    Transact,
    TransactionEnded,
    Withdraw,
)
from kafkalite.failures.lanes import key_digest
from kafkalite.failures.names import parse_origin
from kafkalite.failures.policy import Policy
from kafkalite.failures.retry_strategies import Ignore, Limit, RetryForever, RetryHere, RetryTopics
from kafkalite.failures.rows import HAND_PREFIX, OPEN_PREFIX, Row, State
from kafkalite.failures.run_progress import BatchResult, BatchWork
from kafkalite.failures.session import Session
from kafkalite.failures.times import Moment
from kafkalite.model import TopicPartition

EPOCH_MS = 1_700_000_000_000
ROUNDS_MAX = 4000
"""Turns after which a run that does not end is a fault."""
PROBES_MAX = 100
"""Probes that fail in a row before new records come; more than there are records, and calls while a system is down."""


class Died(Exception):
    """The member's process has ended."""


class Fenced(Exception):
    """The partition belongs to somebody else."""


@dataclass
class Stored:
    """A record in a partition."""

    message: Message
    letter: Letter | None = None


@dataclass
class Scenario:
    """The parameters that a seed gives."""

    policy: Policy
    fates: dict[TopicPartition, list[str]]
    keys: dict[TopicPartition, list[bytes | None]]
    members: int
    outage: tuple[int, int] = (0, 0)
    """Handler calls during which a system is down."""
    call_fates: list[str] | None = None
    """The dead-letter handler's results by offset, repeated; None: there is no handler."""

    def call_fate(self, offset: int) -> str:
        assert self.call_fates is not None
        return self.call_fates[offset % len(self.call_fates)]


class World:
    """The cluster, the handler, and what they saw."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self.scenario = scenario
        self.policy = scenario.policy
        self.rng = rng
        self.now = Moment(EPOCH_MS, 0.0)
        self.steps = 0
        self.played = 0
        """Steps until nothing was left to do; giving up in the end takes more."""
        self.die_at: set[int] = set()
        self.marking = 1.0
        """The share of marks that are written."""
        self.refusals = 0.03
        """The share of transactions that the cluster aborts."""
        self.logs: dict[TopicPartition, list[Stored]] = defaultdict(list)
        self.offsets: dict[TopicPartition, int] = {}
        self.ledger: dict[str, Row] = {}
        self.hands: dict[TopicPartition, Row] = {}
        """What members have marked as in hand."""
        self.owner: dict[TopicPartition, Member] = {}
        self.pending: dict[Member, frozenset[TopicPartition]] = {}
        """Members whose transaction is about to end, and the offsets that are not returned to others before."""
        self.calls: Counter[tuple[TopicPartition, int]] = Counter()
        self.call_count = 0
        self.successes: list[tuple[TopicPartition, int]] = []
        self.faults: list[str] = []
        self.lives = 0
        self.noted_at_deaths: Counter[tuple[TopicPartition, int]] = Counter()
        """How often a record was noted as in hand when a process ended, or was evicted."""
        self.redriven: set[tuple[TopicPartition, int]] = set()
        self.style = "name" if scenario.policy.batch % 2 else "raise"
        """How a handler of batches fails: it raises the first failure, or names all."""
        self.dead_calls: Counter[str] = Counter()
        """Calls of the dead-letter handler, by the letter's id,"""
        self.dead_successes: Counter[str] = Counter()
        """and those that returned."""
        self.rounds_of_new = 0
        """How often new records came."""
        self.disturbances = 0
        """Deaths and rebalances, after which calls are repeated."""
        for partition, fates in scenario.fates.items():
            for offset, _ in enumerate(fates):
                key = scenario.keys[partition][offset]
                self.logs[partition].append(Stored(Message(*partition, offset, self.now.wall_ms, key, b"%d" % offset)))

    def note_suspects(self) -> None:
        """A process has ended, or has lost its partitions without having heard of it."""
        self.noted_at_deaths.update(parse_origin(text) for text, row in self.ledger.items() if row.is_suspect)

    def note_left(self, member: str, numbers: set[int]) -> None:
        """A member gives up partitions of these numbers, but could not write that their records are no longer in hand.
        To the next owner this is as good as a death.
        """
        rows = {parse_origin(text): row for text, row in self.ledger.items() if row.is_suspect and row.member == member}
        self.noted_at_deaths.update(where for where in rows if where[0].partition in numbers)

    def step(self, rng_death: float = 0.0) -> None:
        """Between two things that a member does."""
        self.steps += 1
        if self.steps in self.die_at or (rng_death and self.rng.random() < rng_death):
            raise Died

    def pass_time(self, ms: float) -> None:
        """Advance both clocks."""
        ms += self.now.ms
        self.now = Moment(EPOCH_MS + int(ms), ms)

    @property
    def partitions(self) -> list[TopicPartition]:
        """All that the group subscribes to."""
        counts = {partition.partition for partition in self.scenario.fates}
        layout = self.policy.layout
        topics = [*layout.lanes, *(() if self.scenario.call_fates is None else layout.dead_lanes)]
        return [TopicPartition(topic, number) for topic in topics for number in sorted(counts)]

    def handle(self, message: Message, letter: Letter | None) -> Outcome:
        """The handler: a record's fate is in its partition and offset."""
        where = (TopicPartition(message.topic, message.partition), message.offset)
        if letter is not None:
            where = (letter.partition, letter.offset)
            if letter.due > self.now.wall_ms:
                self.faults.append(f"{where} ran {letter.due - self.now.wall_ms} ms early")
        fate = self.scenario.fates[where[0]][where[1]]
        self.look_at_holds(*where)
        self.call_count += 1
        first, last = self.scenario.outage
        if first <= self.call_count < last:
            return Outcome(Failure(FailureKind.OUTAGE, "ConnectionError"))
        self.calls[where] += 1
        match fate.split():
            case ["ok"]:
                pass
            case ["fatal"]:
                place = len(self.policy.dead_topics) - 1
                return Outcome(Failure(FailureKind.FATAL, "ValueError", text="bad", dead=place))
            case ["always"] | ["mends"] if fate == "always" or where not in self.redriven:
                return Outcome(Failure(FailureKind.RETRIABLE, "RuntimeError", text="no"))
            case ["kill"]:
                raise Died
            case ["fails", times] if self.calls[where] <= int(times) or isinstance(self.policy.strategy, Ignore):
                return Outcome(Failure(FailureKind.RETRIABLE, "RuntimeError", text="not yet"))
        self.successes.append(where)
        outputs = ()
        if fate == "output":
            outputs = (Output("out", 0, b"%s/%d" % (str(where[0]).encode(), where[1]), message.value),)
        return Outcome(outputs=outputs)

    def handle_batch(self, messages: list[Message], letters: list[Letter | None]) -> BatchResult:
        """The handler of batches: what it did for records of a batch that fails, or ends the process, is undone."""
        before, outputs, failures = len(self.successes), [], {}
        for place, (message, letter) in enumerate(zip(messages, letters, strict=True)):
            try:
                outcome = self.handle(message, letter)
            except Died:
                del self.successes[before:]
                raise
            outputs += outcome.outputs
            if outcome.failure is not None:
                failures[place] = outcome.failure
                if self.style == "raise" or outcome.failure.kind is FailureKind.OUTAGE:
                    del self.successes[before:]
                    return BatchResult(failure=outcome.failure)
        if failures and self.with_transaction:
            del self.successes[before:]
        return BatchResult(tuple(outputs), failures=failures)

    @property
    def with_transaction(self) -> bool:
        return self.policy.moves == "exactly once"

    def prepared(self, message: Message) -> Message:
        return message

    def handle_dead(self, message: Message, letter: Letter) -> Outcome:
        """The dead-letter handler."""
        self.dead_calls[letter.id] += 1
        match self.scenario.call_fate(letter.offset).split():
            case ["kill"]:
                raise Died
            case ["fails", times] if self.dead_calls[letter.id] <= int(times):
                return Outcome(Failure(FailureKind.RETRIABLE, "RuntimeError", text="not yet"))
        self.dead_successes[letter.id] += 1
        if self.policy.moves != "exactly once":
            return Outcome()
        return Outcome(outputs=(Output("told", 0, letter.id.encode(), message.value),))

    def produce(self, partition: TopicPartition) -> None:
        """A new record that the handler can process."""
        offset = len(self.logs[partition])
        self.scenario.fates[partition].append("ok")
        self.scenario.keys[partition].append(None)
        self.logs[partition].append(Stored(Message(*partition, offset, self.now.wall_ms, None, b"%d" % offset)))

    def look_at_holds(self, partition: TopicPartition, offset: int) -> None:
        """Nothing of a key runs that waits for another record."""
        key = self.scenario.keys[partition][offset]
        digest = "" if key is None else key_digest(key)
        for text, row in self.ledger.items():
            origin = parse_origin(text) if row.held else None
            if row.held == digest and origin is not None and origin[0] == partition and origin[1] != offset:
                self.faults.append(f"{partition}-{offset} ran while its key waited for {text}")

    def look_after(self) -> bool:
        """What somebody does about letters that keys wait for; whether there was anything."""
        held = {text: row for text, row in self.ledger.items() if row.held and row.state is State.DEAD}
        for text, row in held.items():
            partition, offset = parse_origin(text)
            if offset % 2 or (partition, offset) in self.redriven:
                self.ledger[text] = row._replace(held="")
                continue
            self.redriven.add((partition, offset))
            key = TopicPartition(self.policy.layout.retry(partition.topic, 0), partition.partition)
            message = self.logs[partition][offset].message._replace(topic=key.topic, offset=len(self.logs[key]))
            letter = Letter(f"again-{text}", self.policy.group, partition, offset, rounds=1)
            self.logs[key].append(Stored(message, letter))
            self.ledger[text] = Row(State.REDRIVEN, letter.id, *key, rounds=1, held=row.held)
        return bool(held)


@dataclass(eq=False)
class Member:
    """A process that carries out what its session says. `death` is the chance to die at each step."""

    world: World
    death: float = 0.0
    session: Session = field(init=False)
    runs: dict[TopicPartition, Run] = field(default_factory=dict)
    done: dict[TopicPartition, int] = field(default_factory=dict)
    work: dict[TopicPartition, BatchWork] = field(default_factory=dict)
    """Of handlers that take lists."""
    failed: dict[TopicPartition, list[bytes | None]] = field(default_factory=dict)
    """Keys of what failed in a run."""
    flight: Generator[None, None, TransactionEnded] | None = None
    commits: deque[Generator[None, None, CommitEnded]] = field(default_factory=deque)
    """Plain commits on the wire, in order."""
    paused: set[TopicPartition] = field(default_factory=set)
    positions: dict[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        world = self.world
        world.lives += 1
        exact = world.policy.moves == "exactly once"
        self.name = f"member-{world.lives}"
        self.session = Session(
            world.policy,
            member=self.name,
            nonce=f"{world.lives}." if exact else "",
            draw=world.rng.random,
            by_partition=world.rng.random() < 0.3,
        )
        self.writes_beside = world.rng.random() < 0.7
        """Whether it continues to work while a transaction is open."""
        self.commits_beside = world.rng.random() < 0.7
        """Whether it continues to work while plain commits are in flight."""
        self.giving_up = False
        self.begun = 0
        """Number of the transaction begun last."""
        self.last: tuple[int, set[int]] = (0, set())
        """While it gives up partitions: the first transaction begun since, and their numbers."""
        self.probes_failed = 0
        """Probes in a row, with its breaker open."""

    # --- the group ----------------------------------------------------------------------------------------------------

    def take(self, partitions: list[TopicPartition]) -> None:
        """Take the partitions that a rebalance assigns."""
        world = self.world
        for other in [other for other, keys in world.pending.items() if keys & set(partitions)]:
            other.settle()
        for key in partitions:
            world.owner[key] = self
            self.positions[key] = world.offsets.get(key, 0)
        rows: dict[TopicPartition, dict[int, Row]] = defaultdict(dict)
        opened: dict[TopicPartition, Row] = {}
        for text, row in world.ledger.items():
            if text.startswith(OPEN_PREFIX):
                topic, _, number = text.removeprefix(OPEN_PREFIX).rpartition("-")
                opened[TopicPartition(topic, int(number))] = row
            else:
                origin, offset = parse_origin(text)
                rows[origin][offset] = row
        starts = {key: Start(self.positions[key], len(world.logs[key]), len(world.logs[key])) for key in partitions}
        self.tell(Assigned(starts, rows, opened, self.world.hands))

    def give_up(self, partitions: list[TopicPartition], *, clean: bool) -> None:
        """Give up the partitions that a rebalance revokes; not clean: others own them before the member
        learns of it.
        """
        world = self.world
        world.disturbances += 1
        owned = [key for key in partitions if world.owner.get(key) is self]
        if clean:
            self.tell(Revoking(owned))
            for key in owned:
                self.end_run(key)
            self.hear_commits()
            self.giving_up, self.last = True, (self.begun + 1, {key.partition for key in owned})
            self.tell(Revoked(owned))
            while self.flight is not None and self.session.is_closing:
                self.tell(self.land())
            self.giving_up = False
            self.tell(Lost(owned))
        for key in owned:
            if world.owner.get(key) is self:
                del world.owner[key]
        if not clean:
            world.note_suspects()  # to the next member this is as good as a death
            return
        self.forget(owned)

    def out(self) -> None:
        """It hears that others have its partitions; what it was writing ends behind that."""
        self.tell(Lost(list(self.positions)))
        self.hear_commits()
        if self.flight is not None:
            self.tell(self.land())

    def hear_commits(self) -> None:
        """All plain commits to their ends."""
        while self.commits:
            ended = self.commit_on()
            if ended is not None:
                self.tell(ended)

    def leave_wire(self) -> None:
        """Its process has ended. What it had sent may arrive all the same."""
        while self.commits and self.world.rng.random() < 0.5:
            self.commit_on(dead=True)

    def forget(self, partitions: list[TopicPartition]) -> None:
        for key in partitions:
            self.runs.pop(key, None)
            self.work.pop(key, None)
            self.positions.pop(key, None)
            self.paused.discard(key)

    # --- turns --------------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """One thing that a member may do now, by chance; whether there was any."""
        choices: list[tuple[str, TopicPartition | None]] = [("handle", key) for key in self.runs]
        for key, position in self.positions.items():
            behind = position < len(self.world.logs[key])
            if key not in self.paused and behind:
                choices.append(("fetch", key))
        wake = self.session.wake_at
        if wake is not None and wake <= self.world.now.ms:
            choices.append(("tick", None))
        if self.flight is not None:
            choices.append(("write", None))
        if self.commits:
            choices.append(("commit", None))
        released = [
            Released(key, offset)
            for key, offsets in self.session.holders.items()
            for offset in offsets
            if (row := self.world.ledger.get(f"{key}-{offset}")) is None or not row.held
        ]
        if released:
            choices.append(("ask", None))
        if not choices:
            return False
        what, key = self.world.rng.choice(choices)
        if what == "tick":
            self.tell(Tick())
        elif what == "write":
            ended = self.write()
            if ended is not None:
                self.tell(ended)
        elif what == "commit":
            heard = self.commit_on()
            if heard is not None:
                self.tell(heard)
        elif what == "ask":
            for event in released:
                self.tell(event)
        elif what == "fetch":
            assert key is not None
            self.fetch(key)
        else:
            assert key is not None
            self.handle(key)
        return True

    def fetch(self, key: TopicPartition) -> None:
        log = self.world.logs[key]
        end = min(self.positions[key] + self.world.rng.randint(1, 8), len(log))
        arrivals = [Arrival(one.message, one.letter) for one in log[self.positions[key] : end]]
        self.positions[key] = end
        self.tell(Fetched(key, arrivals, end))

    def handle(self, key: TopicPartition) -> None:
        """The next record of a run, or the next batch."""
        if key in self.work:
            self.handle_batch(key)
            return
        run, place = self.runs[key], self.done[key]
        message = run.messages[place]
        if run.by_key and message.key is not None and message.key in self.failed[key]:
            self.done[key] = place + 1
            if place + 1 == len(run.messages):
                self.end_run(key)
            return
        stored = self.world.logs[key][message.offset]
        mark = run.marks[place] if run.marks else None
        if mark is not None and self.world.rng.random() < self.world.marking:
            self.world.hands[key] = mark.row
            self.step()
        if key.topic in self.world.policy.layout.dead_lanes:
            assert stored.letter is not None, "others are stepped over"
            outcome = self.world.handle_dead(message, stored.letter)
        else:
            outcome = self.world.handle(message, stored.letter)
        self.done[key] = place + 1
        if outcome.failure is not None:
            self.failed[key].append(message.key)
        self.step()
        self.tell(Finished(key, run.number, message.offset, outcome))
        outage = outcome.failure is not None and outcome.failure.kind is FailureKind.OUTAGE
        over = place + 1 == len(run.messages) or outage or len(self.failed[key]) >= run.failures_max
        if over and self.runs.get(key) is run:
            self.end_run(key)

    def handle_batch(self, key: TopicPartition) -> None:
        run, work, world = self.runs[key], self.work[key], self.world
        records = work.next()
        if records:
            mark = run.marks[run.messages.index(work.batch[0])] if run.marks else None
            if mark is not None and world.rng.random() < world.marking:
                world.hands[key] = mark.row
                self.step()
            result = world.handle_batch(records, [world.logs[key][one.offset].letter for one in records])
            self.step()
            work.ended(result)
        for event in work.take():
            self.tell(event)
            self.step()
        if not records and self.runs.get(key) is run:
            self.end_run(key)

    def end_run(self, key: TopicPartition) -> None:
        self.work.pop(key, None)
        run = self.runs.pop(key, None)
        if run is not None:
            self.tell(RunEnded(key, run.number))

    # --- actions ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.world.step(self.death)

    def tell(self, event: Event) -> None:
        """Events one after the other, and what they lead to."""
        waiting: list[Event] = [event]
        while waiting:
            heard = waiting.pop(0)
            if isinstance(heard, Finished):
                failed = self.session.breaker_open and heard.outcome.failure is not None
                self.probes_failed = self.probes_failed + 1 if failed else 0
            if isinstance(heard, TransactionEnded) and heard.failed and self.giving_up and heard.number >= self.last[0]:
                self.world.note_left(self.name, self.last[1])
            for action in self.session.on(heard, self.world.now):
                self.step()
                match action:
                    case Run(partition=key):
                        assert key not in self.runs, "one run of a partition at a time"
                        self.runs[key], self.done[key], self.failed[key] = action, 0, []
                        if self.world.policy.batch and key.topic in self.world.policy.layout.lanes:
                            self.work[key] = BatchWork(action, self.world, self.world.policy.batch)
                    case Withdraw(partition=key):
                        self.work.pop(key, None)
                        run = self.runs.pop(key, None)
                        if run is not None:
                            waiting.append(RunEnded(key, run.number))
                    case Pause(partition=key):
                        self.paused.add(key)
                    case Resume(partition=key):
                        self.paused.discard(key)
                    case Transact():
                        assert self.flight is None, "one transaction at a time"
                        self.flight, self.begun = self.transact(action), action.number
                        if not self.writes_beside:
                            waiting.append(self.land())
                    case Commit():
                        self.commits.append(self.commit(action))
                        while self.commits and (self.giving_up or not self.commits_beside):
                            ended = self.commit_on()
                            if ended is not None:
                                waiting.append(ended)
                    case Alarm() | Stop():
                        pass
                self.step()

    def require(self, offsets: dict[TopicPartition, int] | None, scope: object = None) -> None:
        for key in offsets or {}:
            if self.world.owner.get(key) is not self:
                raise Fenced

    def transact(self, action: Transact) -> Generator[None, None, TransactionEnded]:
        """Records, rows and offsets, and a chance to die between any two; moves at least once leave what is written."""
        world = self.world
        exact = world.policy.moves == "exactly once"
        yield
        written: list[tuple[TopicPartition, Put]] = []
        if exact:
            try:
                self.require(dict(action.offsets))
            except Fenced:
                return TransactionEnded(action.number, failed=True)
            world.pending[self] = frozenset(action.offsets)
            if world.rng.random() < world.refusals:
                yield
                del world.pending[self]
                yield
                return TransactionEnded(action.number, failed=True)
        for put in action.puts:
            key = TopicPartition(put.topic, put.partition or 0)
            if exact:
                written.append((key, put))
            else:
                self.append(key, put)
            yield
        for text, row in action.rows if not exact else ():
            self.write_row(text, row)
            yield
        if not exact:
            try:
                self.require(dict(action.offsets))
            except Fenced:
                return TransactionEnded(action.number, failed=True)
        for key, put in written:
            self.append(key, put)
        for text, row in action.rows if exact else ():
            self.write_row(text, row)
        self.write_offsets(action.offsets)
        world.pending.pop(self, None)
        yield
        return TransactionEnded(action.number)

    def write(self) -> TransactionEnded | None:
        """A step of the transaction under way; how it ended, if it was the last."""
        assert self.flight is not None
        try:
            next(self.flight)
        except StopIteration as ended:
            self.flight = None
            event: TransactionEnded = ended.value
            return event
        self.step()
        return None

    def land(self) -> TransactionEnded:
        """The transaction under way to its end."""
        while (ended := self.write()) is None:
            pass
        return ended

    def settle(self) -> None:
        """Wait until the end of a transaction with offset commits is written, as a fetch of stable offsets does."""
        assert self.flight is not None
        while self in self.world.pending:
            next(self.flight)

    def append(self, key: TopicPartition, put: Put) -> None:
        log = self.world.logs[key]
        log.append(Stored(put.message._replace(topic=key.topic, partition=key.partition, offset=len(log)), put.letter))

    def write_row(self, text: str, row: Row | None) -> None:
        if text.startswith(HAND_PREFIX):
            topic, _, number = text.removeprefix(HAND_PREFIX).rpartition("/")
            self.world.hands.pop(TopicPartition(topic, int(number)), None)
        elif row is None:
            self.world.ledger.pop(text, None)
        else:
            self.world.ledger[text] = row

    def commit(self, action: Commit) -> Generator[None, None, CommitEnded]:
        """A plain commit: on the wire, there, answered."""
        yield
        try:
            self.require(dict(action.offsets))
        except Fenced:
            return CommitEnded(action.number, failed=True)
        if self.world.rng.random() < self.world.refusals:
            return CommitEnded(action.number, failed=True)
        self.write_offsets(action.offsets)
        yield
        return CommitEnded(action.number)

    def commit_on(self, *, dead: bool = False) -> CommitEnded | None:
        """A step of the oldest plain commit; how it ended, if it was the last."""
        try:
            next(self.commits[0])
        except StopIteration as ended:
            self.commits.popleft()
            event: CommitEnded = ended.value
            return event
        if not dead:
            self.step()
        return None

    def write_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        for key, offset in offsets.items():
            if offset < self.world.offsets.get(key, 0):
                self.world.faults.append(f"{key} was committed back to {offset}")
        self.world.offsets |= offsets


# --- runs -------------------------------------------------------------------------------------------------------------


def scenario_of(rng: random.Random, seed: int) -> Scenario:
    """Return a seed's scenario. Every other one with order by key holds keys."""
    order = rng.choice(["none", "none", "key"])
    delays = rng.choice([["1 s"], ["1 s", "10 s"], ["2 s", "5 s", "5 s"], ["200 ms", "3 s"]])
    strategies = {
        "topics": RetryTopics(delays, jitter=rng.choice([0.0, 0.5])),
        "here": RetryHere(3, "100 ms"),
        "chain": RetryHere(2, "50 ms", then=RetryTopics(delays)),
        "forever": RetryForever(["10 ms", "1 s"]),
        "ignore": Ignore(record=rng.random() < 0.5),
    }
    kind = rng.choice(
        ["topics", "chain"] if order == "key" else ["topics", "topics", "chain", "here", "forever", "ignore"]
    )
    holds = order == "key" and seed % 2 == 0
    policy = Policy(
        group="billing",
        topics=["orders"],
        strategy=strategies[kind],
        order=order,
        after_dead="hold" if holds else "continue",
        moves="exactly once" if order == "key" or rng.random() < 0.8 else "at least once",
        limit=Limit(0.6, "10 s", least=5) if kind == "topics" and rng.random() < 0.3 else None,
        ahead_max=rng.choice([3, 500]),
        fatal=[ValueError],
        dead_topics={ValueError: "wrong"} if seed % 4 == 1 else {},
    )
    if seed % 5 == 2:
        policy = replace(policy, batch=min(2 + seed % 7, policy.ahead_max))
    partitions = [TopicPartition("orders", number) for number in range(rng.randint(1, 3))]
    weights = {"ok": 10, "fails 1": 2, "fails 2": 1, "fatal": 1, "always": 1, "kill": 0.3, "output": 2}
    if kind == "forever":
        del weights["always"]
    if policy.moves == "at least once":
        del weights["output"]
    fates, keys = {}, {}
    for key in partitions:
        count = rng.randint(3, 25)
        fates[key] = rng.choices(list(weights), list(weights.values()), k=count)
        keys[key] = [rng.choice([b"a", b"b", b"c", None]) for _ in range(count)]
        if holds:
            for offset in range(0, count, 4):
                fates[key][offset] = fates[key][offset].replace("always", "mends")
    first = rng.randint(1, 40)
    outage = (first, first + rng.randint(1, 10)) if rng.random() < 0.2 else (0, 0)
    scenario = Scenario(policy, fates, keys, rng.randint(1, 3), outage)
    if seed % 3 == 0 and policy.writes_letters:
        calls = random.Random(f"calls {seed}")
        scenario.call_fates = calls.choices(["ok", "fails 1", "fails 3", "kill"], [6, 2, 1, 0.3], k=7)
    return scenario


def run_seed(seed: int, *, die_at: set[int] | None = None, death: float | None = None, members: int = 0) -> World:
    """One run to its end, with deaths at these steps, or by chance."""
    rng = random.Random(seed)
    scenario = scenario_of(rng, seed)
    if members:
        scenario = replace(scenario, members=members)
    world = World(scenario, rng)
    world.die_at = die_at or set()
    chance = rng.choice([0.0, 0.01, 0.03]) if death is None else death
    play(world, chance, rebalances=death is None)
    return world


def run_poisoned(seed: int, *, kills: int, marking: float) -> World:
    """One run with records that end the process each time, two of them adjacent at least and one apart, and with so
    many other deaths at steps by chance."""
    rng = random.Random(seed)
    scenario = scenario_of(rng, seed)
    policy = replace(scenario.policy, limit=None)  # with the breaker open nothing that was noted is in hand
    scenario = replace(scenario, policy=policy, members=rng.choice([1, 1, 2]))
    for fates in scenario.fates.values():
        first = rng.randrange(len(fates) - 1)
        for offset in {first, first + 1, rng.randrange(len(fates))}:
            fates[offset] = "kill"
    if scenario.call_fates is not None:
        scenario.call_fates = ["ok", "fails 1"]
    world = World(scenario, rng)
    world.marking = marking
    world.die_at = {rng.randrange(1, 400) for _ in range(kills)}
    play(world, 0.0, rebalances=False)
    return world


def play(world: World, death: float, *, rebalances: bool) -> None:
    """Members take turns until nothing is left to do."""
    live: list[Member] = []
    zombies: list[Member] = []
    for turn in range(ROUNDS_MAX):
        if turn == ROUNDS_MAX // 2:
            death, rebalances = 0.0, False
        if rebalances and live and world.rng.random() < 0.02:
            shuffle(world, live, zombies)
        while len(live) < world.scenario.members:
            live.append(Member(world, death))
        assign(world, live)
        busy = [member for member in list(live) if alive(world, live, member, member.turn)]
        if not busy and len(live) == world.scenario.members and not wait(world, live) and not world.look_after():
            break
        world.pass_time(world.rng.random() * 8)
        for zombie in list(zombies):
            zombies.remove(zombie)
            alive(world, live, zombie, zombie.turn)
            alive(world, live, zombie, zombie.out)
    else:
        world.faults.append(f"not done after {ROUNDS_MAX} turns")
    world.die_at, world.refusals, world.played = set(), 0.0, world.steps
    for member in live:
        member.death = 0.0
        member.give_up(list(member.positions), clean=True)


def alive(world: World, live: list[Member], member: Member, work: Callable[[], object]) -> bool:
    """Run a member's work; when that ends its process, its partitions lose their owner. Return whether the member lives
    and did it.
    """
    try:
        return bool(work())
    except Died:
        world.pending.pop(member, None)
        world.disturbances += 1
        world.note_suspects()
        member.leave_wire()
        if member in live:
            live.remove(member)
        for key in [key for key, owner in world.owner.items() if owner is member]:
            del world.owner[key]
        return True


def assign(world: World, live: list[Member]) -> None:
    """Each partition number of every topic goes to one member, as the range assignor does."""
    wanted = {key: live[key.partition % len(live)] for key in world.partitions}
    for member in list(live):
        going = [key for key in member.positions if wanted.get(key) is not member]
        if going:
            alive(world, live, member, partial(member.give_up, going, clean=True))
    for member in list(live):
        coming = [key for key, owner in wanted.items() if owner is member and world.owner.get(key) is not member]
        if coming:
            alive(world, live, member, partial(member.take, coming))


def shuffle(world: World, live: list[Member], zombies: list[Member]) -> None:
    """A member goes: in good order, or without having heard that it is out."""
    member = world.rng.choice(live)
    clean = world.rng.random() < 0.5
    alive(world, live, member, lambda: member.give_up(list(member.positions), clean=clean))
    if member in live:
        live.remove(member)
        if not clean:
            zombies.append(member)


def refresh(world: World, live: list[Member]) -> None:
    """New records come to members with an open breaker. When all that is left always fails, a member cannot tell that
    from a system that is down: it counts no attempt until a record is processed.
    """
    for member in live:
        if member.probes_failed >= PROBES_MAX:
            member.probes_failed = 0
            world.rounds_of_new += 1
            for key in member.positions:
                for _ in range(world.rounds_of_new if key in world.scenario.fates else 0):
                    world.produce(key)


def wait(world: World, live: list[Member]) -> bool:
    """Advance the time to the next wake-up; return False without one."""
    refresh(world, live)
    wakes = [member.session.wake_at for member in live]
    times = [wake for wake in wakes if wake is not None]
    if not times:
        return False
    world.pass_time(max(min(times) - world.now.ms, 0.0) + world.rng.random() + 1)
    return True


# --- what must hold ---------------------------------------------------------------------------------------------------


def faults(world: World) -> Iterator[str]:
    """Promises that were broken."""
    yield from world.faults
    policy = world.policy
    dead: Counter[tuple[TopicPartition, int]] = Counter()
    for key, log in world.logs.items():
        for one in log:
            if key.topic in policy.layout.dead_lanes and one.letter is not None:
                dead[one.letter.partition, one.letter.offset] += 1
    done = set(world.successes)
    for partition, fates in world.scenario.fates.items():
        for offset, fate in enumerate(fates):
            where = (partition, offset)
            row = world.ledger.get(f"{partition}-{offset}")
            weak = policy.moves == "at least once"
            if weak and (where in done or dead[where]):
                continue  # done twice, maybe: what was written twice has a second row, which may come when all is done
            ignored = isinstance(policy.strategy, Ignore) and fate in {"always", "fails 1", "fails 2"}
            dies = fate in {"fatal", "always", "kill"} or dead[where]
            if where not in done and not dead[where] and not ignored:
                yield f"{where} ({fate}) is neither processed nor dead"
            if where in world.redriven:
                if (row is None and where not in done) or dead[where] != 1 + (row is not None):
                    yield f"{where} ({fate}) went back, is {dead[where]} letters, and the ledger says {row}"
                continue
            if row is not None and row.held:
                yield f"{where} ({fate}) holds its key still"
            if dead[where] > 1:
                yield f"{where} ({fate}) is {dead[where]} letters"
            if not ignored and bool(dead[where]) != (row is not None and row.state is State.DEAD):
                yield f"{where} ({fate}): {dead[where]} letters, and the ledger says {row}"
            if not ignored and not dies and row is not None:
                yield f"{where} ({fate}) was processed, and the ledger says {row}"
    yield from order_faults(world)
    yield from call_faults(world)
    outputs = Counter(one.message.key for one in world.logs[TopicPartition("out", 0)])
    for text, count in outputs.items():
        if count > 1:
            yield f"{text!r} was written {count} times"
    for partition, fates in world.scenario.fates.items():
        for offset, fate in enumerate(fates):
            name = f"{partition}/{offset}".encode()
            if fate == "output" and not dead[partition, offset] and name not in outputs:
                yield f"{name!r} was not written"
    for key in world.partitions:
        if world.offsets.get(key, 0) != len(world.logs[key]):
            yield f"{key} ends at {len(world.logs[key])}, committed is {world.offsets.get(key, 0)}"
    if left := [text for text in world.ledger if text.startswith(OPEN_PREFIX)]:
        yield f"open at the end: {left}"


def call_faults(world: World) -> Iterator[str]:
    """Each letter had its call, and what the calls sent is there once."""
    if world.scenario.call_fates is None:
        return
    told = Counter((one.message.key or b"").decode() for one in world.logs[TopicPartition("told", 0)])
    letters = {}
    for key in world.partitions:
        for offset, one in enumerate(world.logs[key] if key.topic in world.policy.layout.dead_lanes else ()):
            assert one.letter is not None
            letters[one.letter.id] = one.letter
            row = world.ledger.get(f"{key}-{offset}")
            given_up = row is not None and row.state is State.SKIPPED
            of_record = world.ledger.get(f"{one.letter.partition}-{one.letter.offset}")
            is_dead = of_record is not None and of_record.id == one.letter.id
            if world.policy.moves == "at least once" and (world.disturbances or not is_dead):
                continue  # a letter without its row, or one whose row came from a member that was replaced meanwhile
            if not given_up and not world.dead_successes[one.letter.id]:
                yield f"{one.letter.id} had {world.dead_successes[one.letter.id]} calls, and the ledger says {row}"
            if row is not None and not given_up:
                yield f"the call for {one.letter.id} is done, and the ledger says {row}"
            if given_up and not world.noted_at_deaths[key, offset] >= 2:
                yield f"the call for {one.letter.id} was given up after {world.noted_at_deaths[key, offset]} deaths"
            sent = int(not given_up and world.policy.moves == "exactly once")
            if told[one.letter.id] != sent:
                yield f"the call for {one.letter.id} wrote {told[one.letter.id]} records and not {sent}"
    for name, count in world.dead_successes.items():
        if name not in letters:
            yield f"{name} had {count} calls and is no letter"
        if count > 1 + world.disturbances and world.policy.moves == "exactly once":
            yield f"{name} had {count} calls in {world.disturbances} deaths and rebalances"


def order_faults(world: World) -> Iterator[str]:
    """With order by key, the first successes of each key."""
    if world.policy.order != "key":
        return
    last: dict[tuple[TopicPartition, bytes], int] = {}
    seen: set[tuple[TopicPartition, int]] = set()
    for partition, offset in world.successes:
        key = world.scenario.keys[partition][offset]
        if key is None or (partition, offset) in seen:
            continue
        seen.add((partition, offset))
        if last.get((partition, key), -1) > offset:
            yield f"{partition}: {offset} of key {key!r} succeeded behind {last[partition, key]}"
        last[partition, key] = offset
    written: dict[tuple[str, bytes], int] = {}
    for one in world.logs[TopicPartition("out", 0)]:
        name, _, number = (one.message.key or b"").decode().rpartition("/")
        partition = next(each for each in world.scenario.keys if str(each) == name)
        key = world.scenario.keys[partition][int(number)]
        if key is not None:
            if written.get((name, key), -1) > int(number):
                yield f"{partition}: what {number} of key {key!r} wrote stands behind {written[name, key]}"
            written[name, key] = int(number)


def final_state(world: World) -> tuple[object, ...]:
    """Return the outcome that two runs of one scenario share, whichever members died."""
    goals = world.policy.layout.dead_lanes
    dead = sorted(
        (key.topic, one.letter.partition, one.letter.offset)
        for key, log in world.logs.items()
        for one in log
        if key.topic in goals and one.letter is not None
    )
    rows = sorted(
        (text, row.state.value) for text, row in world.ledger.items() if parse_origin(text)[0].topic not in goals
    )
    told = {name.partition("/")[0] for name in world.dead_successes}
    return sorted(set(world.successes)), dead, rows, told
