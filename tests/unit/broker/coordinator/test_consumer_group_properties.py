"""Random heartbeats, departures, pauses, lost responses, failed writes, restarts and topic changes (KIP-848).

Invariants at every step: no partition has two owners with a valid epoch, the log matches the group's state, and no
member gets an assignment that the log does not have. Once left alone, the members share all partitions.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalite.errors import ErrorCode
from tests.kit.harness.consumer_group_bench import ConsumerBench

NAMES = ["a", "b", "c"]
CLIENTS_MAX = 4
LOST = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}


class Client:
    """A consumer that follows the protocol: revokes what it must and reports what it owns."""

    def __init__(self, number, instance, topics, expression):
        self.number, self.instance, self.topics, self.expression = number, instance, topics, expression
        self.lives = 0
        self.begin()

    def begin(self):
        """A new process of the same client."""
        self.lives += 1
        self.member_id = f"m{self.number}-{self.lives}"
        self.forget()
        self.waiting = None

    def forget(self):
        """Give up all partitions, to join as a new member."""
        self.epoch = 0
        self.owned = {}
        self.told = None
        self.say_all = True

    def send(self, bench):
        full = self.say_all
        self.say_all = False
        self.waiting = bench.beat(
            self.member_id,
            self.epoch,
            owned={topic: sorted(numbers) for topic, numbers in self.owned.items()},
            topics=self.topics if full else None,
            expression=self.expression if full else None,
            instance=self.instance,
            rebalance_s=30 if full else None,
        )

    def hear(self):
        response, self.waiting = self.waiting.response, None
        if response.error_code in LOST:
            self.forget()
        elif response.error_code:
            assert response.error_code in {
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            }
            self.say_all = True
        else:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                rows = response.assignment.topic_partitions
                self.told = {row.topic_id: set(row.partitions) for row in rows}

    def work(self):
        """Take the assigned partitions and revoke the others."""
        if self.told is not None:
            self.owned, self.told = self.told, None


class ConsumerGroups(RuleBasedStateMachine):
    """Clients in any interleaving; writes may be slow or fail; the broker may die; time passes in jumps."""

    @initialize()
    def begin(self):
        self.bench = ConsumerBench({"a": 3, "b": 2})
        self.clients = []
        self.count = 0

    @rule(
        static=st.booleans(),
        topics=st.sampled_from([["a", "b"], ["a", "b"], ["a"], ["a", "b", "c"], []]),
        expression=st.sampled_from(["", "", "", "[ab]", "b|c"]),
    )
    def appear(self, static, topics, expression):
        if len(self.clients) < CLIENTS_MAX:
            self.count += 1
            self.clients.append(Client(self.count, f"i{self.count}" if static else None, topics, expression))

    @rule(number=st.integers(0, CLIENTS_MAX - 1))
    def beat(self, number):
        """The client's next move, if it is its turn."""
        if number < len(self.clients):
            self._beat(self.clients[number])

    def _beat(self, client):
        if client.waiting is None:
            client.send(self.bench)
        if client.waiting.done:
            client.hear()

    @rule()
    def everybody_beats(self):
        for client in self.clients:
            self._beat(client)

    @rule()
    def everybody_works(self):
        for client in self.clients:
            client.work()

    @rule(number=st.integers(0, CLIENTS_MAX - 1))
    def work(self, number):
        if number < len(self.clients):
            self.clients[number].work()

    @rule(number=st.integers(0, CLIENTS_MAX - 1))
    def answer_is_lost(self, number):
        if number < len(self.clients):
            client = self.clients[number]
            if client.waiting is None:
                client.send(self.bench)
            client.waiting = None
            client.say_all = True

    @rule(number=st.integers(0, CLIENTS_MAX - 1), topics=st.sets(st.sampled_from(NAMES)))
    def subscribe(self, number, topics):
        if number < len(self.clients) and self.clients[number].waiting is None:
            self.clients[number].topics = sorted(topics)
            self.clients[number].say_all = True

    @rule(number=st.integers(0, CLIENTS_MAX - 1), comes_back=st.booleans())
    def leave(self, number, comes_back):
        """For good, or a static one for now; it does not look at the answer."""
        if number < len(self.clients) and self.clients[number].waiting is None:
            client = self.clients[number]
            for_now = comes_back and client.instance is not None
            self.bench.beat(client.member_id, -2 if for_now else -1, instance=client.instance)
            if for_now:
                client.begin()
            else:
                self.clients.remove(client)

    @rule(number=st.integers(0, CLIENTS_MAX - 1))
    def die(self, number):
        if number < len(self.clients):
            del self.clients[number]

    @rule(seconds=st.sampled_from([1, 5, 29, 46]))
    def wait(self, seconds):
        self.bench.pass_time(seconds)

    @rule()
    def disk_becomes_slow(self):
        self.bench.writes.at_once = False

    @rule(code=st.sampled_from([0, 0, 0, ErrorCode.KAFKA_STORAGE_ERROR]))
    def disk_comes_back(self, code):
        """What waited is written, or is not."""
        self.bench.writes.failing = code
        self.bench.writes.settle()
        self.bench.writes.failing = 0
        self.bench.writes.at_once = True

    @rule(name=st.sampled_from(NAMES), count=st.integers(0, 4), generation=st.integers(0, 1))
    def topic_changes(self, name, count, generation):
        self.bench.set_topic(name, count, generation=generation)

    @rule()
    def broker_dies(self):
        self.bench.restart()
        for client in self.clients:
            if client.waiting is not None:
                client.waiting = None
                client.say_all = True

    @invariant()
    def one_owner(self):
        if not hasattr(self, "bench"):
            return
        seen = {}
        for client in self.clients:
            if client.epoch and self.bench.group.commit_error_locked(client.member_id, None, client.epoch) == 0:
                for topic, numbers in client.owned.items():
                    for number in numbers:
                        assert seen.setdefault((topic, number), client) is client, (topic, number)

    @invariant()
    def state_holds_together(self):
        if not hasattr(self, "bench"):
            return
        state = self.bench.group.state
        held = [
            (topic, number)
            for member in state.members.values()
            for assignment in (member.assigned, member.revoking)
            for topic, numbers in assignment.items()
            for number in numbers
        ]
        assert len(held) == len(set(held))
        assert set(state.owners) == set(held)
        epochs = [
            (topic, number)
            for member in state.members.values()
            for topic, numbers in member.assignment_epochs.items()
            for number, epoch in numbers.items()
            if 0 <= epoch <= state.target_epoch
        ]
        assert sorted(epochs) == sorted(held)
        assert set(state.static_ids.values()) <= set(state.members)
        assert all(member.epoch <= state.target_epoch <= state.epoch for member in state.members.values())
        targets = [(t, n) for target in state.targets.values() for t, numbers in target.items() for n in numbers]
        assert len(targets) == len(set(targets))
        assert set(state.targets) <= set(state.members)

    @invariant()
    def log_says_what_the_group_is(self):
        if not hasattr(self, "bench"):
            return
        state = self.bench.group.state
        logged = self.bench.replayed().get("g")
        if logged is None:
            assert state.epoch == 0
            return
        for name in ("epoch", "metadata_hash", "target_epoch", "members", "targets", "owners", "static_ids"):
            assert getattr(logged, name) == getattr(state, name), name
        assert logged.expressions == state.expressions

    def teardown(self):
        """Left alone, with the disk well, every partition has an owner and every client its share."""
        if not hasattr(self, "bench"):
            return
        self.bench.writes.at_once = True
        self.bench.settle()
        for _ in range(60):
            self.bench.pass_time(5, step=5)
            for client in self.clients:
                self._beat(client)
                self._beat(client)
                client.work()
            if self._settled():
                break
        assert self._settled(), (self.bench.group, [vars(client) for client in self.clients])

    def _settled(self):
        group, topics = self.bench.group, self.bench.topics
        members = {client.member_id for client in self.clients}
        wanted = {
            (topics[name].id, number)
            for name in group.state.subscribed() & topics.keys()
            for number in range(len(topics[name].partitions))
        }
        owned = [(t, n) for client in self.clients for t, numbers in client.owned.items() for n in numbers]
        return (
            set(group.state.members) == members
            and group.state_name == ("Stable" if members else "Empty")
            and sorted(owned) == sorted(wanted)
        )


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=50, deadline=None)
