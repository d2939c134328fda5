"""Any order of joins, syncs, departures and silence: what must hold for a group at every moment, and in the end."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalite.broker.coordinator.classic_state import State
from kafkalite.errors import ErrorCode
from tests.kit.harness.group_bench import GroupBench

SESSION_S = 10
REBALANCE_S = 30


class Client:
    """What one well-behaved consumer knows."""

    def __init__(self, instance):
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.join = None
        self.sync = None
        self.assignment = None


class Groups(RuleBasedStateMachine):
    """Clients follow the protocol, in any interleaving; writes may be slow or fail; time passes in jumps."""

    @initialize(delay_ms=st.sampled_from([0, 3000]))
    def begin(self, delay_ms):
        self.bench = GroupBench(initial_delay_ms=delay_ms)
        self.bench.writes.at_once = False
        self.clients = []
        self.asked = []
        self.count = 0

    @rule(static=st.booleans())
    def appear(self, static):
        if len(self.clients) < 6:
            self.count += 1
            self.clients.append(Client(f"i{self.count}" if static else None))

    @rule(number=st.integers(0, 5))
    def step(self, number):
        """The client's next move, if it is its turn."""
        if number < len(self.clients):
            self._step(self.clients[number])

    def _step(self, client):
        if client.join is not None:
            if client.join.done:
                self._joined(client, client.join.response)
        elif client.sync is not None:
            if client.sync.done:
                response, client.sync = client.sync.response, None
                client.assignment = response.assignment if response.error_code == 0 else None
                if response.error_code:
                    self._look(client, response.error_code)
        elif client.assignment is None:
            client.join = self._note(
                self.bench.join(client.member_id, client.instance, session_s=SESSION_S, rebalance_s=REBALANCE_S)
            )
        else:
            code = self.bench.heartbeat(client.member_id, client.generation, client.instance)
            if code:
                self._look(client, code)

    def _joined(self, client, response):
        client.join = None
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
            return
        if response.error_code:
            self._look(client, response.error_code)
            return
        client.member_id, client.generation = response.member_id, response.generation_id
        assignments = {}
        if response.members and not response.skip_assignment:
            assignments = {member.member_id: member.member_id.encode() for member in response.members}
        client.sync = self._note(
            self.bench.sync(client.member_id, client.generation, assignments, group_instance_id=client.instance)
        )

    def _look(self, client, code):
        client.assignment = None
        if code not in {
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        }:
            client.member_id = ""

    def _note(self, answer):
        self.asked.append(answer)
        return answer

    @rule(number=st.integers(0, 5))
    def leave(self, number):
        if number < len(self.clients):
            client = self.clients.pop(number)
            if client.member_id:
                self.bench.leave(client.member_id, client.instance)

    @rule(number=st.integers(0, 5))
    def die(self, number):
        if number < len(self.clients):
            client = self.clients.pop(number)
            self.bench.group.forget_pending(client.member_id)

    @rule(seconds=st.sampled_from([1, 4, 11, 31]))
    def wait(self, seconds):
        self.bench.pass_time(seconds)

    @rule(code=st.sampled_from([0, 0, 0, ErrorCode.KAFKA_STORAGE_ERROR]))
    def disk(self, code):
        self.bench.writes.failing = code
        self.bench.writes.settle()
        self.bench.writes.failing = 0

    @invariant()
    def holds_together(self):
        if not hasattr(self, "bench"):
            return
        group = self.bench.group
        members = group.members
        assert group.state is not State.DEAD
        assert (group.state is State.EMPTY) <= (not members)
        assert not members or group.leader in members
        assert set(group.static_ids.values()) <= set(members)
        if group.state is State.STABLE:
            assert not any(member.awaiting_sync for member in members.values())
        if group.state in {State.STABLE, State.COMPLETING}:
            assert group.protocol == "range"
        if group.state is not State.PREPARING:
            waiting = [member for member in members.values() if member.awaiting_join is not None]
            assert len(waiting) <= 1 or group.state is State.STABLE  # static returns that are being written

    @invariant()
    def one_owner_a_generation(self):
        """What two clients hold in one generation was given to each of them by name."""
        if not hasattr(self, "bench"):
            return
        held = [(client.generation, client.assignment) for client in self.clients if client.assignment]
        assert len(held) == len(set(held))

    def teardown(self):
        """Left alone with a working disk, each member that follows the protocol is stable and no request hangs."""
        if not hasattr(self, "bench"):
            return
        self.bench.writes.at_once = True
        for _ in range(150):
            self.bench.pass_time(2)
            for client in self.clients:
                self._step(client)
            if self._settled():
                break
        assert self._settled(), (self.bench.group, [vars(client) for client in self.clients])
        assert all(answer.done for answer in self.asked)

    def _settled(self):
        group = self.bench.group
        return len(group.members) == len(self.clients) and all(
            client.assignment is not None and client.generation == group.generation for client in self.clients
        )


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
