"""The comparison's own machinery, with a driver and systems that cost nothing: order, failures, resuming, tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.head_to_head import command, drive, drivers, plots, report, run
from benchmarks.head_to_head.plan import SERIES, SYSTEMS, Case, Profile, only, produce, profile
from benchmarks.head_to_head.run import Runner
from benchmarks.head_to_head.store import OtherRun, Store, load_rows, load_run
from benchmarks.head_to_head.system import DidNotStart, System
from kafkalite.cli import main
from tests.kit.harness.command_output import own_lines

PYTHON = (sys.executable, "-I", "-S")
"""Starts in a third of the time."""
DRIVER = """
import json, sys
arguments = dict(zip(sys.argv[2::2], sys.argv[3::2]))
if arguments["--topic"].startswith("broken"):
    sys.exit("it broke")
count = int(arguments.get("--messages", 0)) or int(arguments["--rate"]) * int(arguments["--seconds"])
seconds = count / 1000
row = {"client": "fake 1", "messages": count, "bytes": count * 200, "seconds": seconds, "cpu_s": 0.001}
row["progress"] = [[seconds * i / 100, count * i // 100] for i in range(1, 101)]
row["histogram_us"] = [[100, count - 2], [1000, 1], [9000, 1]]
if arguments.get("--rate") == "5000":
    row["histogram_us"] = [[2000000, count]]
print(json.dumps(row))
"""


class Idle(System):
    """A process that does nothing, ready at once."""

    title = "idle"
    remote_port = 1
    version = classmethod(lambda cls: "1")  # type: ignore[assignment]
    settings = property(lambda self: "none")  # type: ignore[assignment]

    def launch(self) -> None:
        self.run_program(*PYTHON, "-c", "import signal; signal.pause()")

    def answers(self) -> bool:
        return True


class Ends(Idle):
    def launch(self) -> None:
        self.run_program(*PYTHON, "-c", "raise SystemExit('no licence')")

    def answers(self) -> bool:
        return False


CASES = [
    produce("one", 50),
    Case("consume", "consume", after="produce-one-50"),
    Case("latency-1000", "latency", rate=1000),
]
SMALL = Profile("quick", 2, 0.5, 1.0, 0.01, 0.0, 10_000, CASES)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Runner]:
    """A runner of fake systems `kafkalite` and `redis`, driven by a fake driver."""
    program = tmp_path / "driver.py"
    program.write_text(DRIVER)
    monkeypatch.setattr(drive, "first_driver", lambda names: ("fake", (*PYTHON, str(program))))
    monkeypatch.setattr(drive, "SETTLE_WINDOW_S", 0.005)
    for name in ("kafkalite", "redis"):
        monkeypatch.setitem(SYSTEMS, name, type(name, (Idle,), {"name": name, "title": name}))

    def make(chosen: Profile = SMALL, names: tuple[str, ...] = ("kafkalite", "redis"), **options: object) -> Runner:
        return Runner(chosen, names, Store(tmp_path / "out"), {"systems": list(names)}, **options)  # type: ignore[arg-type]

    return make


def cases_of(folder: Path, *, repeat: int) -> list[tuple[str, str]]:
    return [(row["system"], row["case"]) for row in load_rows(folder) if row["repeat"] == repeat]


@pytest.mark.slow
def test_every_system_is_measured_in_every_repeat(fake: Callable[..., Runner], tmp_path: Path) -> None:
    fake().run()
    for repeat in (0, 1):
        found = cases_of(tmp_path / "out", repeat=repeat)
        names = ["start", "produce-one-50", "consume", "latency-1000"]
        assert found == [(system, name) for system in ("kafkalite", "redis") for name in names]
    saved = load_run(tmp_path / "out")
    assert saved["finished"]
    assert saved["counts"]["redis/asynchronous/produce-one-50"] == 500  # half a second at the fake's 1,000 a second
    assert saved["machine"]["commit"]
    rows = {row["case"]: row for row in load_rows(tmp_path / "out")}
    assert rows["consume"]["messages"] == rows["produce-one-50"]["messages"] == 500


def test_systems_take_turns_in_being_first(fake: Callable[..., Runner]) -> None:
    order = [(session.repeat, session.system.name) for session in fake().plan()]
    assert order == [(0, "kafkalite"), (0, "redis"), (1, "redis"), (1, "kafkalite")]


def test_a_failing_case_is_a_row_and_the_run_continues(fake: Callable[..., Runner], tmp_path: Path) -> None:
    broken = Profile("quick", 1, 0.5, 1.0, 0.01, 0.0, 10_000, [produce("one", 1, name="broken"), *CASES], count=100)
    runner = fake(broken)
    runner.run()
    rows = {row["case"]: row for row in load_rows(tmp_path / "out") if row["system"] == "redis"}
    assert rows["broken"]["failed"].endswith("it broke")
    assert rows["consume"]["messages"] == 100
    assert len(report.Results.load(tmp_path / "out").failures()) == 2


def test_rates_above_one_that_was_too_fast_are_not_tried(fake: Callable[..., Runner], tmp_path: Path) -> None:
    rates = [Case(f"latency-{rate}", "latency", rate=rate) for rate in (1_000, 5_000, 10_000)]
    fake(Profile("quick", 1, 0.5, 1.0, 0.01, 0.0, 10_000, rates), names=("redis",)).run()
    rows = {row["case"]: row for row in load_rows(tmp_path / "out")}
    assert rows["latency-5000"]["p50_us"] == 2e6
    assert rows["latency-10000"]["too_fast"] == 5_000
    page = report.markdown(report.latency_table(report.Results.load(tmp_path / "out")))
    assert "not tried, 5,000/s was too fast" in page


def test_several_consumers_of_one_queue_are_skipped_by_name(
    fake: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SYSTEMS, "rabbitmq", type("rabbitmq", (Idle,), {"name": "rabbitmq"}))
    several = Case("consume-of-2", "consume", after="produce-one-50", clients=2)
    runner = fake(Profile("full", 1, 0.5, 1.0, 0.01, 0.0, 10_000, [*CASES, several]), names=("kafkalite", "rabbitmq"))
    planned = {session.system.name: [case.name for case in session.cases] for session in runner.plan()}
    assert "consume-of-2" in planned["kafkalite"]
    assert "consume-of-2" not in planned["rabbitmq"]
    runner.run()
    assert "rabbitmq, consume-of-2" in runner.store.run["skipped"]


def test_a_system_that_does_not_start_is_said_with_its_log(
    fake: Callable[..., Runner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = fake()
    monkeypatch.setitem(SYSTEMS, "redis", type("redis", (Ends,), {"name": "redis", "title": "redis"}))
    runner.run()
    failed = [row for row in load_rows(tmp_path / "out") if "failed" in row]
    assert {row["system"] for row in failed} == {"redis"}
    assert "no licence" in failed[0]["failed"]


def test_a_missing_system_is_skipped_by_name(
    fake: Callable[..., Runner], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    runner = fake()
    missing = classmethod(lambda cls: "the package redis is not installed")
    monkeypatch.setitem(SYSTEMS, "redis", type("redis", (Idle,), {"name": "redis", "missing": missing}))
    runner.run()
    assert "skipped: redis: the package redis is not installed" in capfd.readouterr().err
    text = report.render(report.Results.load(tmp_path / "out"), report.text)
    assert "- redis: the package redis is not installed" in text


@pytest.mark.slow
def test_resuming_keeps_closed_sessions_and_redoes_the_others(fake: Callable[..., Runner], tmp_path: Path) -> None:
    fake().run()
    path = tmp_path / "out" / "rows" / "redis.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-2], '{"session": "redis/asynch']))  # cut off in its last session
    kept = [row for row in load_rows(tmp_path / "out") if row["repeat"] == 0]
    fake(resume=True).run()
    rows = load_rows(tmp_path / "out")
    assert [row for row in rows if row["repeat"] == 0] == kept
    assert len(rows) == 16


@pytest.mark.slow
def test_resuming_another_run_is_refused(fake: Callable[..., Runner]) -> None:
    fake().run()
    with pytest.raises(OtherRun, match="systems"):
        fake(names=("redis",), resume=True).run()


@pytest.mark.slow
def test_a_new_run_removes_the_last_ones_rows(fake: Callable[..., Runner], tmp_path: Path) -> None:
    fake().run()
    fake(names=("kafkalite",)).run()
    assert {row["system"] for row in load_rows(tmp_path / "out")} == {"kafkalite"}


@pytest.mark.slow
def test_tables_and_plots_of_a_run(fake: Callable[..., Runner], tmp_path: Path) -> None:
    fake().run()
    results = report.Results.load(tmp_path / "out")
    page = report.render(results, report.markdown)
    assert "### Consumer test" in page
    assert "| redis | 1,000 | × 1.00 |" in page
    assert "| redis | 0.10 / 0.10 / 1.00 |" in page, "998 of 1,000 are in the first bucket"
    names = {path.name for path in plots.draw(results, tmp_path / "out")}
    assert {"producer.png", "producer.svg", "consumer.png", "latency.svg", "cpu.png"} <= names


def test_a_bare_client_is_compared_with_the_fastest_of_the_others(fake: Callable[..., Runner], tmp_path: Path) -> None:
    bare = [produce("one", 50, name="produce-one-50-bare", series="bare")]
    bare.append(Case("consume-bare", "consume", series="bare", after="produce-one-50-bare"))
    fake(Profile("default", 1, 0.5, 1.0, 0.01, 0.0, 10_000, [*CASES, *bare])).run()
    found = cases_of(tmp_path / "out", repeat=0)
    assert ("kafkalite", "consume-bare") in found
    assert ("redis", "consume-bare") not in found, "it has no such client"
    (ours, theirs) = report.bare_table(report.Results.load(tmp_path / "out")).rows
    assert ours[4:8] == ["1,000", "–", "1,000", "–"]
    assert theirs[4:8] == ["1,000", "× 1.00", "1,000", "× 1.00"]


@pytest.mark.slow
def test_no_table_of_bare_clients_without_them(fake: Callable[..., Runner], tmp_path: Path) -> None:
    fake().run()
    assert report.bare_table(report.Results.load(tmp_path / "out")).rows == []


# ---- pieces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "bound"), [(0.5, 100.0), (0.9, 100.0), (0.98, 100.0), (0.99, 1000.0), (0.999, 9000.0), (1.0, 9000.0)]
)
def test_percentiles_are_bounds_of_buckets(share: float, bound: float) -> None:
    assert drive.percentile([(100.0, 98), (1000.0, 1), (9000.0, 1)], share) == bound


def test_no_percentile_of_nothing() -> None:
    assert drive.percentile([], 0.99) == 0.0


def test_coarse_histograms_lose_no_count() -> None:
    row = {"messages": 1000, "bytes": 1, "seconds": 1.0, "cpu_s": 0.1}
    row["histogram_us"] = [[bound, 1] for bound in range(1, 1001)]  # type: ignore[assignment]
    found = drive.latency(row)
    assert len(found["histogram_us"]) <= drive.HISTOGRAM_BUCKETS_MAX
    assert sum(count for _, count in found["histogram_us"]) == 1000
    assert found["p99_us"] == 990
    assert found["max_us"] == 1000


def test_drivers_that_ran_at_once_share_the_longest_time() -> None:
    one = {"messages": 10, "bytes": 20, "seconds": 1.0, "cpu_s": 0.5}
    found = drive.throughput([one, {**one, "seconds": 2.0}])
    assert (found["messages"], found["rate_per_s"], found["client_cpu_s"]) == (20, 10.0, 1.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1234, "0.12"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234.5, "1,230"),
        (98_765, "98,800"),
        (1_234_567, "1,230,000"),
    ],
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text


def test_every_consume_case_reads_what_an_earlier_one_of_its_session_stored() -> None:
    for name in ("quick", "default", "full", "paper"):
        chosen = profile(name)
        for cases in (chosen.cases, chosen.synchronous_cases):
            before: set[str] = set()
            for case in cases:
                assert case.kind != "consume" or case.after in before, case.name
                before.add(case.name)
            assert len(before) == len(cases), "names are keys"


def test_only_some_cases_and_what_they_read() -> None:
    chosen = only(profile("default"), ["consume-bare", "produce-disk-1"])
    assert [case.name for case in chosen.cases] == ["produce-one-50-bare", "consume-bare"]
    assert [case.name for case in chosen.synchronous_cases] == ["produce-disk-1"]


def test_every_driver_of_the_plan_is_there() -> None:
    named = {driver for series in SERIES.values() for names in series.values() for driver in names}
    known = set(drivers.DRIVERS)
    assert {name for name in named if name not in known} <= {"nats-raw", "nats-c"}
    assert known & {"nats-raw", "nats-c"}


# ---- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--systems", "kafka8"], "unknown system kafka8; choose from kafkalite"),
        (["--systems", ","], "--systems is empty"),
        (["--only", "produce-one-50,consume-all"], "--only: no case consume-all in this profile; choose from produce-"),
        (["--only", ""], "--only: no case "),
        (["--repeats", "0"], "--repeats must be at least 1"),
        (["--remote", "host:0"], "is not HOST or HOST:PORT"),
        (["--remote", "host", "--systems", "redis,nats"], "--remote measures one system"),
        (["--remote", "host", "--resume"], "cannot be combined"),
        (["--quick", "--full"], "not allowed with argument"),
    ],
)
def test_bad_options_are_one_sentence_and_status_2(
    arguments: list[str], sentence: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["bench", "--out", str(tmp_path / "out"), *arguments]) == 2
    error = own_lines(capfd.readouterr().err)
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "address"),
    [("host", ("host", 9092)), ("host:1", ("host", 1)), ("[::1]", ("::1", 9092)), ("[::1]:2", ("::1", 2))],
)
def test_remote_addresses(text: str, address: tuple[str, int]) -> None:
    assert command.parse_remote(text, 9092) == address


def test_a_remote_host_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.drive, "first_driver", lambda names: ("fake", ("false",)))
    with pytest.raises(DidNotStart, match=r"cannot connect to 127\.0\.0\.1:1"):
        command.Remote(SYSTEMS["kafkalite"], "127.0.0.1", 1).start()


def test_show_of_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--show", str(tmp_path)]) == 2
    assert "has no run of kafkalite bench" in capfd.readouterr().err


def test_without_a_clone_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "from kafkalite.cli import bench, main; from pathlib import Path; bench.CLONE = Path('/nowhere'); "
    done = subprocess.run([sys.executable, "-c", script + "raise SystemExit(main(['bench']))"], capture_output=True)
    assert done.returncode == 2
    assert b"the installed package does not contain the benchmarks" in done.stderr
    assert done.stderr.count(b"\n") == 1
