"""Compile the interceptors of examples/audit and run them in a Java client: every message is there, once."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from tests.compat.java.test_java import BUILD, build
from tests.kit.processes.broker import REPOSITORY

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EXAMPLES = REPOSITORY / "examples" / "audit"
TOOLS = ("java", "javac", "mvn")
PROGRAM = """
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Program {
    public static void main(String[] arguments) {
        Map<String, Object> producing = Map.of("bootstrap.servers", arguments[0], "audit.server", "java1",
            "audit.window.ms", "100", "interceptor.classes", "AuditProducerInterceptor");
        try (var producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
            for (int at = 0; at < 1000; at++) {
                producer.send(new ProducerRecord<>("visits", "key " + at, "value " + at));
            }
        }
        Map<String, Object> consuming = Map.of("bootstrap.servers", arguments[0], "group.id", "billing",
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", 70,
            "interceptor.classes", "AuditConsumerInterceptor");
        try (var consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("visits"));
            for (int taken = 0; taken < 1000; ) {
                taken += consumer.poll(Duration.ofSeconds(1)).count();
                consumer.commitSync();
            }
        }
    }
}
"""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"flush.on.acks.all": False}) as running:
        yield running


def test_the_interceptors_run(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tool in TOOLS:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on the PATH (apt-get install openjdk-17-jdk-headless maven)")
    build()
    program = tmp_path / "Program.java"
    program.write_text(PROGRAM, encoding="utf-8")
    files = [str(path) for path in (*EXAMPLES.glob("*.java"), program)]
    command = ["javac", "-Xlint:all", "-Werror", "-cp", f"{BUILD}/lib/*", "-d", str(tmp_path), *files]
    compiled = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert compiled.returncode == 0, compiled.stderr
    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("visits", 3)
        client.admin.create_topic("kafkalite.audit", 1)
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{BUILD}/lib/*:{tmp_path}", "Program"]
    done = subprocess.run(
        [*command, broker.bootstrap_servers], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    stages = ["--consumer", "billing", "--topics", "visits", "--grace", "0", "--json", "-q"]
    assert main(["audit", "--live", broker.bootstrap_servers, *stages]) == 0
    found_by = json.loads(capsys.readouterr().out)
    assert (found_by["expected"], list(found_by["stages"])) == (1000, ["live", "billing"])
    assert found_by["stages"]["billing"]["records"] == 1000
