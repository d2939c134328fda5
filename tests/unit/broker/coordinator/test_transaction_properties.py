"""Random runs of transactional producers against a model: after any interruption, the outcome is the acknowledged one.

Two transactional ids, clients of both protocols. Jobs run one by one in between, so that requests meet unfinished
changes; responses are lost, requests repeated, the process dies with or without its unflushed bytes, and a log fails
for a while. At the end everything is settled and checked.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalite.broker.coordinator.transaction_rules import TV1, TV2
from kafkalite.errors import ErrorCode
from tests.kit.harness.coordinator_bench import Bench, Client

NAMES = ("a", "b")
OPEN, COMMITTED, ABORTED, ENDING = "open", "committed", "aborted", "ending"


class Transactions(RuleBasedStateMachine):
    """A transaction is (name, producer id, epoch, number); the model knows what was written in each, and its end."""

    @initialize()
    def begin(self):
        self.bench = Bench()
        self.clients = {}
        self.current = {}  # name → the transaction its client believes to be in
        self.written = {}  # transaction → [(partition, value)]
        self.outcome = {}  # transaction → what is known of its end
        self.asked = {}  # transaction → commit or not, of an end whose answer did not come
        self.count = 0
        self.stable = [0, 0, 0]

    # ---- what clients do --------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), version=st.sampled_from([TV1, TV2]))
    def new_producer(self, name, version):
        code, producer_id, epoch = self.bench.init(name)
        assert code in {
            0,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        }
        if code == 0:
            before = self.clients.get(name)
            if before is not None:
                assert (producer_id, epoch) > (before.producer_id, before.epoch) or producer_id != before.producer_id
            self.clients[name] = Client(self.bench, name, producer_id, epoch, version)
            self.current.pop(name, None)

    def transaction_of(self, client):
        name = client.name
        if name not in self.current:
            self.count += 1
            self.current[name] = (name, self.count)
            self.written[self.current[name]] = []
            self.outcome[self.current[name]] = OPEN
        return self.current[name]

    @rule(name=st.sampled_from(NAMES), partition=st.integers(0, 2))
    def write(self, name, partition):
        client = self.clients.get(name)
        if client is None:
            return
        if client.version == TV1 and client.add(partition) != 0:
            return
        transaction = self.transaction_of(client)
        self.count += 1
        value = b"%d" % self.count
        if client.write(partition, value) == 0:
            self.written[transaction].append((partition, value))

    @rule(name=st.sampled_from(NAMES))
    def commit_offset(self, name):
        client = self.clients.get(name)
        if client is None or (client.version == TV1 and client.add_group(name) != 0):
            return
        transaction = self.transaction_of(client)
        self.count += 1
        if client.commit_offset(self.count, group=name) == 0:
            self.written[transaction].append((name, self.count))

    @rule(name=st.sampled_from(NAMES), commit=st.booleans(), steps=st.integers(0, 12) | st.none())
    def end(self, name, commit, steps):
        """With `steps`, the response is checked after that many jobs; a missing one is lost and requested again."""
        client = self.clients.get(name)
        transaction = self.current.get(name)
        if client is None or transaction is None:
            return
        if steps is not None:
            self.bench.transactions.end(name, client.producer_id, client.epoch, commit=commit, version=client.version)
            for _ in range(steps):
                self.bench.jobs.run_one()
        code = client.end(commit=commit)
        for _ in range(3):
            if code == ErrorCode.CONCURRENT_TRANSACTIONS:
                self.bench.pass_time(5, step=5)
                code = client.end(commit=commit)
        if code == 0:
            self.outcome[transaction] = COMMITTED if commit else ABORTED
            del self.current[name]
        else:
            # Fenced, timed out, a log that fails: what was asked may have been done, what was not asked never.
            self.outcome[transaction] = ENDING if commit else ABORTED
            self.clients.pop(name)
            del self.current[name]

    @rule(name=st.sampled_from(NAMES), commit=st.booleans(), back=st.integers(1, 3))
    def late_requests_of_the_newer_protocol(self, name, commit, back):
        client = self.clients.get(name)
        if client is None or client.version == TV1 or client.epoch < back or name not in self.current:
            return
        transaction = self.bench.transactions.find(name)
        self.bench.settle()
        before = transaction.now
        late = client.at(client.epoch - back)
        assert late.write(0, b"late") != 0
        assert late.commit_offset(10**6, group=name) != 0
        late.end(commit=commit)
        assert transaction.now == before

    @rule(name=st.sampled_from(NAMES), partition=st.integers(0, 2))
    def write_outside_a_transaction(self, name, partition):
        client = self.clients.get(name)
        if client is not None and client.version == TV1 and name not in self.current:
            assert client.write(partition, b"outside") != 0

    # ---- what happens to them ---------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 10, 61]))
    def time_passes(self, seconds):
        before = self.bench.clock.monotonic()
        self.bench.pass_time(seconds, step=5)
        assert self.bench.clock.monotonic() > before
        if seconds > 60:
            self.forget_open()

    def forget_open(self):
        """Open transactions have timed out."""
        for name, transaction in list(self.current.items()):
            self.outcome[transaction] = ABORTED
            self.clients.pop(name, None)
            del self.current[name]

    @rule(keep_unflushed=st.booleans())
    def crash(self, keep_unflushed):
        self.bench.crash(keep_unflushed=keep_unflushed)
        if not keep_unflushed:
            self.stable = [0, 0, 0]  # a marker may be gone; what it said is decided, and it is written again

    @rule(partition=st.integers(0, 2), code=st.sampled_from([None, ErrorCode.KAFKA_STORAGE_ERROR]))
    def log_fails_or_recovers(self, partition, code):
        self.bench.log(partition).failing = code

    @invariant()
    def last_stable_offset_never_goes_back(self):
        now = [self.bench.log(number).last_stable_offset for number in range(3)]
        assert all(new >= old for new, old in zip(now, self.stable, strict=True))
        self.stable = now

    def teardown(self):
        if not hasattr(self, "bench"):
            return
        for number in range(3):
            self.bench.log(number).failing = None
        self.bench.pass_time(130, step=5)
        self.forget_open()
        seen = [set(self.bench.log(number).committed()) for number in range(3)]
        for transaction, outcome in self.outcome.items():
            there = {
                value in seen[partition] for partition, value in self.written[transaction] if partition in (0, 1, 2)
            }
            assert len(there) <= 1, f"{transaction} is there in part"
            if outcome is COMMITTED:
                assert there <= {True}, f"{transaction} was committed and is not there"
            elif outcome is ABORTED:
                assert there <= {False}, f"{transaction} was aborted and is there"
        assert all(not values & {b"late", b"outside"} for values in seen)
        for number in range(3):
            log = self.bench.log(number)
            assert log.last_stable_offset == log.log_end_offset, "a transaction hangs"
        self.check_offsets()

    def check_offsets(self):
        for name in NAMES:
            (found,) = self.bench.groups.offsets.fetch(name, "t", [0], stable=True)
            offset = None if found is None else found.offset
            ended = [
                (self.outcome[transaction], value)
                for transaction, items in self.written.items()
                for where, value in items
                if where == name
            ]
            sure = max((value for outcome, value in ended if outcome is COMMITTED), default=None)
            possible = {value for outcome, value in ended if outcome is not ABORTED} | {None}
            assert offset in possible
            assert sure is None or (offset is not None and offset >= sure)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
