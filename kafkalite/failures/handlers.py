"""Decorate a function so that it handles the records of a consumer group under a policy.

    @failures.handler(topics="orders", group="billing", retry=["1 s", "10 s", "1 min"], fatal=LookupError)
    def bill(order): ...

    bill.run("127.0.0.1:9092")          until SIGTERM or Ctrl-C
    await bill.serve("127.0.0.1:9092")  inside a running event loop, until it is cancelled
    @bill.dead                          decorates a function that is called for each dead letter
    bill.try_records([b"…"])            in memory, without a broker
    bill(order)                         the function itself

The decorator creates a Policy; `run` passes it to kafkalite.failures.run.

Thread rule: a Handler is immutable once its module is imported, and may run in several threads at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import threading
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar

from kafkalite.base.ending import on_ending
from kafkalite.failures.arguments import refuse_unknown
from kafkalite.failures.batch_calls import caller_of
from kafkalite.failures.calls import name_of
from kafkalite.failures.dead_letters import DeadCaller
from kafkalite.failures.policy import Policy
from kafkalite.failures.retry_strategies import RetryTopics, check_delays
from kafkalite.failures.running import run
from kafkalite.failures.trial import Trial, Tried, messages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Unpack

    from kafkalite.failures.events import Message
    from kafkalite.failures.retry_strategies import Limit, Strategy
    from kafkalite.failures.runner import Runner
    from kafkalite.failures.times import Duration

P = ParamSpec("P")
R = TypeVar("R")
Dead = TypeVar("Dead", bound="Callable[..., object]")


class PolicyOptions(TypedDict, total=False):
    """The optional fields of Policy that `handler` accepts.

    `fatal` and `outage` may be a single class instead of a list.
    """

    strategy: Strategy
    fatal: type[BaseException] | Sequence[type[BaseException]]
    outage: type[BaseException] | Sequence[type[BaseException]]
    rules: Mapping[type[BaseException], Strategy]
    order: str
    after_dead: str
    processing_time_max: Duration
    limit: Limit | None
    after: str | Sequence[str]
    on_dead: str
    on_damage: str
    reprocess: str
    moves: str
    decode: Callable[[bytes], Any] | None
    compat: Sequence[str]
    scrub: Callable[[str], str] | None
    letter_key: str
    dead_topics: Mapping[type[BaseException], str]
    cleanup: str
    skip_tombstones: bool
    batch: int
    ahead_max: int
    parked_max: int


def handler(
    *,
    topics: str | Sequence[str],
    group: str,
    retry: Sequence[Duration] | None = None,
    **options: Unpack[PolicyOptions],
) -> Callable[[Callable[P, R]], Handler[P, R]]:
    """Decorate a function, or coroutine function, that handles one record: `f(record)` or `f(record, transaction)`.

    With `batch=`, the function handles a list of records.

    `topics`    one topic, or a list
    `group`     the consumer group
    `retry`     delays of the retry topics, such as ["1 s", "1 min"]: short for strategy=RetryTopics(retry)
    `strategy`  another strategy instead: RetryTopics, RetryHere, RetryForever or Ignore
    others      the fields of Policy. `fatal`, `outage` and `after` may be a single value instead of a list

    Returns a decorator that turns the function into a Handler. Errors: TypeError for an unknown argument; ValueError
    for a wrong value, or if the function's parameters do not fit.
    """
    refuse_unknown("@failures.handler", options, PolicyOptions.__annotations__)
    given: dict[str, Any] = {**options}
    if (retry is None) is ("strategy" not in given):
        raise ValueError(
            "@failures.handler needs retry=[…] or strategy=…"
            if retry is None
            else "retry=[…] is short for strategy=RetryTopics([…]): pass one of them"
        )
    if retry is not None:
        check_delays("retry", retry)
        given["strategy"] = RetryTopics(retry)
    for name in ("fatal", "outage"):
        if isinstance(given.get(name), type):
            given[name] = [given[name]]
    if isinstance(given.get("after"), str):
        given["after"] = [given["after"]]
    policy = Policy(group=group, topics=[topics] if isinstance(topics, str) else topics, **given)
    return functools.partial(Handler, policy)


class Handler(Generic[P, R]):
    """A decorated function with its policy. Calling it calls the function. See `handler`."""

    def __init__(self, policy: Policy, function: Callable[P, R]) -> None:
        if not callable(function):
            raise TypeError(f"@failures.handler decorates a function, not {function!r}")
        caller_of(policy, function)  # raises ValueError if the function cannot handle records
        functools.update_wrapper(self, function)
        self.policy = policy
        self.function = function
        self.dead_function: Callable[..., object] | None = None
        """The dead-letter handler, if one is set."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<handler {name_of(self.function)} of group {self.policy.group}>"

    def __reduce__(self) -> str:
        return self.function.__qualname__

    def dead(self, function: Dead) -> Dead:
        """Decorate the dead-letter handler: `f(letter)` or `f(letter, transaction)`, sync or async.

        The function is called with each DeadLetter of the group, including older letters that are neither redriven nor
        resolved. When the call returns, the group's offset for the letter is committed. The records sent through
        `transaction` are committed in the same transaction, so output is written exactly once. A letter is passed to
        the function again only if the member ends or loses the partition before the commit.

        If the function raises an exception, the call is repeated after the strategy's delays. The last delay applies to
        all further calls. Meanwhile only the later letters of that partition wait. The calls for a letter end if the
        function raises `Failed` with "fatal". They also end if they have crashed the process three times; the ledger
        then lists the letter as `skipped`.

        Errors: ValueError if there is a dead-letter handler already, if the function cannot handle letters, or if the
        policy makes no dead letters.
        """
        if self.dead_function is not None:
            raise ValueError(f"{name_of(self.function)} has a dead-letter handler: {name_of(self.dead_function)}")
        DeadCaller(self.policy, function)  # raises ValueError
        self.dead_function = function
        return function

    def run(
        self,
        bootstrap_servers: str | Iterable[str] | None = None,
        *,
        stop: threading.Event | None = None,
        **options: Any,
    ) -> str:
        """Handle records until SIGTERM, Ctrl-C or `stop`. Return "", or the reason why the policy stopped the member.

        On shutdown, running handler calls finish, their offsets are committed, and the member leaves the group. A
        second signal ends the process at once. Signals are handled only in the main thread, and not if the program has
        its own handler for SIGTERM.

        `options` are those of `failures.run`: security, member, workers, on_alarm, on_failed, on_moved, create_topics,
        on_start and others, and those of a GroupReader. Errors: StartupError, KafkaError.
        """
        stop = threading.Event() if stop is None else stop
        with _ended_by_signals(stop):
            return run(self.policy, self.function, bootstrap_servers, stop=stop, dead=self.dead_function, **options)

    async def serve(
        self,
        bootstrap_servers: str | Iterable[str] | None = None,
        *,
        stop: threading.Event | None = None,
        **options: Any,
    ) -> str:
        """Handle records inside a running event loop, until `stop` or cancellation. Return what `run` returns.

        An async handler runs in this loop, `workers` calls at a time; a sync handler runs in threads. The Kafka client
        has its own thread, which calls the hooks (`on_alarm` and others). When this coroutine is cancelled, async
        handlers are cancelled, sync handlers finish, the member leaves the group, and CancelledError is raised. Records
        without an outcome are delivered again.

        Arguments and errors are those of `run`.
        """
        stop = threading.Event() if stop is None else stop
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str] = loop.create_future()
        runners: list[Runner] = []
        on_start = options.pop("on_start", None)

        def started(runner: Runner) -> None:
            runners.append(runner)
            if on_start is not None:
                on_start(runner)

        def work() -> None:
            why = ""
            failure: BaseException | None = None
            try:
                why = run(
                    self.policy,
                    self.function,
                    bootstrap_servers,
                    stop=stop,
                    loop=loop,
                    dead=self.dead_function,
                    on_start=started,
                    **options,
                )
            except BaseException as error:  # noqa: BLE001  # raised in the loop
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(_settle, ended, why, failure)

        threading.Thread(target=work, name=f"failures-{self.policy.group}", daemon=True).start()
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            stop.set()
            for runner in runners:
                runner.cancel()
            await _until_done(ended)
            if ended.exception() is not None:
                raise asyncio.CancelledError from ended.exception()
            raise

    def try_records(self, records: Iterable[Message | bytes | None], *, attempts_max: int = 100) -> Tried:
        """Handle records in memory, without a broker, and return their outcomes.

        Records are values (None for a tombstone) or Messages; see kafkalite.failures.trial.messages_of. Retries run
        without waiting, in the order of their due times. A record that is still failing after `attempts_max` calls is
        `unfinished`. An async handler runs in the event loop of another thread. The dead-letter handler is called, too.
        Errors: ValueError or TypeError for something that is not a record.
        """
        trial = Trial(self.policy, self.function, attempts_max, self.dead_function)
        return trial.run(messages_of(self.policy, records))


def _settle(ended: asyncio.Future[str], why: str, error: BaseException | None) -> None:
    if error is None:
        ended.set_result(why)
    else:
        ended.set_exception(error)


async def _until_done(ended: asyncio.Future[str]) -> None:
    """Wait until the future `ended` is done, even if this task is cancelled meanwhile."""
    while not ended.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ended])


@contextlib.contextmanager
def _ended_by_signals(stop: threading.Event) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C set `stop`. Does nothing outside the main thread, or if the program handles SIGTERM
    itself.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    with on_ending(stop.set):
        yield
