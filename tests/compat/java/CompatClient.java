import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.RetriableCommitFailedException;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own Java client against the broker named on the command line; one check per name.
 *
 * Usage: CompatClient host:port check topic [argument]. Exit status 0 and "ok" when the check holds, else the exception.
 * With - as the check, each line of standard input has a check, a topic and an argument, with tabs between them. The
 * answer to each ends with a line "ok" or "failed".
 */
public final class CompatClient {
    private static final long TIMEOUT_S = 30;
    private static final int LARGE_SIZE = 1 << 20;
    private static final String CLASSIC = "org.apache.kafka.clients.consumer.";
    private static final String NEXT = "next:";

    private final String bootstrap;
    private final String topic;

    private CompatClient(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] args) throws Exception {
        if (args[1].equals("-")) {
            answerLines(args[0]);
        } else {
            check(args[0], args[1], args[2], args.length > 3 ? args[3] : "");
            System.out.println("ok");
        }
        System.exit(0); // daemon threads of the clients need not be waited for
    }

    private static void answerLines(String bootstrap) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            try {
                check(bootstrap, words[0], words[1], words[2]);
                System.out.println("ok");
            } catch (Exception | AssertionError error) {
                error.printStackTrace(System.out);
                System.out.println("failed");
            }
        }
    }

    private static void check(String bootstrap, String check, String topic, String argument) throws Exception {
        CompatClient client = new CompatClient(bootstrap, topic);
        switch (check) {
            case "codec" -> client.checkCodec(argument);
            case "edges" -> client.checkEdges();
            case "idempotent" -> client.checkIdempotent();
            case "positions" -> client.checkPositions();
            case "times" -> client.checkTimes();
            case "admin" -> client.checkAdmin();
            case "records" -> client.checkDeleteRecords();
            case "sessions" -> client.checkSessions();
            case "group" -> client.checkGroup(CLASSIC + "RangeAssignor");
            case "cooperative" -> client.checkGroup(CLASSIC + "CooperativeStickyAssignor");
            case "member" -> client.joinOthers(argument);
            case "rolled" -> client.readAndCommit(argument);
            case "written" -> client.writeOn(Integer.parseInt(argument));
            case "next-uniform" -> client.checkGroup(NEXT + "uniform");
            case "next-range" -> client.checkGroup(NEXT + "range");
            case "consumer" -> client.checkConsumerProtocol();
            case "transaction" -> client.checkTransaction();
            default -> throw new IllegalArgumentException(check);
        }
    }

    /** Where the broker is, and what the environment says of TLS and SASL, if anything. */
    private Map<String, Object> door() {
        Map<String, String> environment = System.getenv();
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", environment.getOrDefault("DOOR_BOOTSTRAP", bootstrap));
        if (!environment.containsKey("DOOR_CA")) return settings;
        String mechanism = environment.get("DOOR_MECHANISM");
        settings.put("security.protocol", mechanism == null ? "SSL" : "SASL_SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", environment.get("DOOR_CA"));
        if (environment.containsKey("DOOR_IDENTITY")) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", environment.get("DOOR_IDENTITY"));
        }
        if ("OAUTHBEARER".equals(mechanism)) {
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
                + " unsecuredLoginStringClaim_sub=\"" + environment.get("DOOR_USER") + "\";");
        } else if (mechanism != null) {
            String module = "org.apache.kafka.common.security."
                + (mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule");
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", module + " required username=\"" + quoted(environment.get("DOOR_USER"))
                + "\" password=\"" + quoted(environment.get("DOOR_PASSWORD")) + "\";");
        }
        return settings;
    }

    private static String quoted(String text) {
        return text.replace("\\", "\\\\").replace("\"", "\\\"");
    }

    private KafkaProducer<byte[], byte[]> producer(String... pairs) {
        Properties settings = new Properties();
        settings.putAll(door());
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        settings.put("max.request.size", 4_000_000);
        settings.put("delivery.timeout.ms", 40_000);
        for (int i = 0; i < pairs.length; i += 2) settings.put(pairs[i], pairs[i + 1]);
        return new KafkaProducer<>(settings);
    }

    private KafkaConsumer<byte[], byte[]> consumer(long offset, String... pairs) {
        Properties settings = new Properties();
        settings.putAll(door());
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        for (int i = 0; i < pairs.length; i += 2) settings.put(pairs[i], pairs[i + 1]);
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        TopicPartition partition = new TopicPartition(topic, 0);
        consumer.assign(List.of(partition));
        consumer.seek(partition, offset);
        return consumer;
    }

    private Admin admin() {
        return Admin.create(door());
    }

    private List<ConsumerRecord<byte[], byte[]>> read(long offset, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(offset)) {
            while (found.size() < count) {
                require(System.nanoTime() < deadline, found.size() + " of " + count + " records");
                consumer.poll(Duration.ofMillis(200)).forEach(found::add);
            }
        }
        return found;
    }

    private static byte[] text(String value) {
        return value.getBytes(StandardCharsets.UTF_8);
    }

    private static void require(boolean condition, String what) {
        if (!condition) throw new AssertionError(what);
    }

    /** Kafka applies what an admin changes a moment after it has answered. */
    private static void await(String what, Callable<Boolean> condition) throws Exception {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S); !condition.call(); Thread.sleep(50))
            require(System.nanoTime() < end, what);
    }

    private ProducerRecord<byte[], byte[]> record(byte[] key, byte[] value) {
        return new ProducerRecord<>(topic, 0, key, value);
    }

    private List<RecordMetadata> send(List<ProducerRecord<byte[], byte[]>> records, String... settings) throws Exception {
        List<RecordMetadata> answers = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) sent.add(producer.send(record));
            for (Future<RecordMetadata> answer : sent) answers.add(answer.get(TIMEOUT_S, TimeUnit.SECONDS));
        }
        return answers;
    }

    private List<ProducerRecord<byte[], byte[]>> numbered(int count) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < count; i++) records.add(record(text("key-" + i), text(("value-" + i + ";").repeat(10))));
        return records;
    }

    private void requireSame(List<ProducerRecord<byte[], byte[]>> sent, List<ConsumerRecord<byte[], byte[]>> found, long first) {
        require(sent.size() == found.size(), "sent " + sent.size() + ", found " + found.size());
        for (int i = 0; i < sent.size(); i++) {
            require(found.get(i).offset() == first + i, "offset " + found.get(i).offset() + " at " + (first + i));
            require(Arrays.equals(sent.get(i).key(), found.get(i).key()), "key " + i);
            require(Arrays.equals(sent.get(i).value(), found.get(i).value()), "value " + i);
            require(Arrays.equals(sent.get(i).headers().toArray(), found.get(i).headers().toArray()), "headers " + i);
        }
    }

    private void checkCodec(String codecAndAcks) throws Exception {
        String[] parts = codecAndAcks.split("/");
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        List<ProducerRecord<byte[], byte[]>> records = numbered(300);
        send(records, "compression.type", parts[0], "acks", parts[1], "enable.idempotence", "false", "linger.ms", "50");
        requireSame(records, read(0, records.size()), 0);
    }

    private void checkEdges() throws Exception {
        byte[] large = new byte[LARGE_SIZE];
        for (int i = 0; i < large.length; i++) large[i] = (byte) i;
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>(List.of(
            record(text("key"), text("value")), record(null, text("no key")), record(text("no value"), null),
            record(null, null), record(new byte[0], new byte[0]), record(text("large"), large)));
        ProducerRecord<byte[], byte[]> headed = record(text("headers"), text("v"));
        headed.headers().add(new RecordHeader("same", text("1"))).add(new RecordHeader("same", text("2")));
        headed.headers().add(new RecordHeader("empty", new byte[0])).add(new RecordHeader("null", (byte[]) null));
        records.add(headed);
        send(records);
        requireSame(records, read(0, records.size()), 0);
    }

    /** A consumer of many partitions, which fetches by topic id and in a session; its topic is deleted and made anew. */
    private void checkSessions() throws Exception {
        int count = 200;
        List<TopicPartition> partitions = new ArrayList<>();
        for (int i = 0; i < count; i++) partitions.add(new TopicPartition(topic, i));
        Properties settings = new Properties();
        settings.putAll(door());
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("allow.auto.create.topics", "false");
        settings.put("metadata.max.age.ms", "1000");
        try (Admin admin = admin(); KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, count, (short) 1))).all().get();
            consumer.assign(partitions);
            Map<String, Integer> seen = new HashMap<>();
            for (int round = 0; round < 5; round++) {
                List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
                // All of them first, and twice, then some.
                for (int i = 0; i < count; i += round < 2 ? 1 : 7 * round) {
                    records.add(new ProducerRecord<>(topic, i, null, text("old-" + round + "-" + i)));
                }
                send(records);
                pollUntil(consumer, seen, seen.size() + records.size());
            }
            admin.deleteTopics(List.of(topic)).all().get();
            consumer.poll(Duration.ofMillis(500));
            admin.createTopics(List.of(new NewTopic(topic, count, (short) 1))).all().get();
            // With another leader, and an end below its position, the log looks truncated to it: it would go on at the end.
            if (bootstrap.contains(",")) consumer.seekToBeginning(partitions);
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            for (int i = 0; i < count; i++) records.add(new ProducerRecord<>(topic, i, null, text("new-" + i)));
            send(records);
            pollUntil(consumer, seen, seen.size() + count);
            require(seen.values().stream().allMatch(times -> times == 1), "each once");
            require(seen.keySet().stream().filter(value -> value.startsWith("new-")).count() == count, "all the new ones");
        }
    }

    private void pollUntil(KafkaConsumer<byte[], byte[]> consumer, Map<String, Integer> seen, int count) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        while (seen.size() < count) {
            require(System.nanoTime() < deadline, seen.size() + " of " + count + " values");
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                seen.merge(new String(record.value(), StandardCharsets.UTF_8), 1, Integer::sum);
            }
        }
    }

    private void checkIdempotent() throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = numbered(5000);
        List<RecordMetadata> answers = send(records, "enable.idempotence", "true", "acks", "all");
        for (int i = 0; i < answers.size(); i++) require(answers.get(i).offset() == i, "offset of " + i);
        requireSame(records, read(0, records.size()), 0);
    }

    private void checkPositions() throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = numbered(500);
        send(records, "compression.type", "lz4", "batch.size", "4000");
        for (int first : new int[] {0, 1, 137, 499})
            requireSame(records.subList(first, 500), read(first, 500 - first), first);
    }

    private void checkTimes() throws Exception {
        long base = System.currentTimeMillis() - 100_000;
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < 100; i++) records.add(new ProducerRecord<>(topic, 0, base + i * 10, null, text("" + i)));
        send(records, "linger.ms", "200");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(0); Admin admin = admin()) {
            long[][] table = {{0, 0}, {1, 1}, {505, 51}, {990, 99}};
            for (long[] row : table) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, base + row[0])).get(partition);
                require(found.offset() == row[1] && found.timestamp() == base + row[1] * 10, "time " + row[0] + ": " + found);
            }
            require(consumer.offsetsForTimes(Map.of(partition, base + 991)).get(partition) == null, "time after the end");
            require(consumer.beginningOffsets(List.of(partition)).get(partition) == 0, "beginning");
            require(consumer.endOffsets(List.of(partition)).get(partition) == 100, "end");
            long largest = admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get().offset();
            require(largest == 99, "largest timestamp at " + largest);
        }
    }

    private TopicDescription describe(Admin admin) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private void checkAdmin() throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "1234567")))).all().get();
            TopicDescription description = describe(admin);
            require(description.partitions().size() == 3, "3 partitions");
            require(!description.topicId().toString().equals("AAAAAAAAAAAAAAAAAAAAAA"), "a topic id");
            try {
                admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
                throw new AssertionError("created twice");
            } catch (ExecutionException exception) {
                require(exception.getCause() instanceof TopicExistsException, "" + exception.getCause());
            }
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            require(config(admin, resource, "retention.ms").equals("1234567"), "retention.ms as created");
            Collection<AlterConfigOp> change =
                List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "7654321"), AlterConfigOp.OpType.SET));
            admin.incrementalAlterConfigs(Map.of(resource, change)).all().get();
            await("retention.ms as altered", () -> config(admin, resource, "retention.ms").equals("7654321"));
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
            await("5 partitions", () -> describe(admin).partitions().size() == 5);
            int brokers = bootstrap.split(",").length;
            require(admin.describeCluster().nodes().get().size() == brokers, brokers + " nodes");
            require(admin.describeCluster().controller().get().id() >= 0, "a controller");
            int node = admin.describeCluster().controller().get().id();
            require(!admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).isEmpty(), "a log directory");
            admin.deleteTopics(List.of(topic)).all().get();
            await("deleted", () -> !admin.listTopics().names().get().contains(topic));
        }
    }

    private static String config(Admin admin, ConfigResource resource, String key) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key).value();
    }

    private KafkaConsumer<byte[], byte[]> member(String assignor) {
        return member(assignor, topic);
    }

    private KafkaConsumer<byte[], byte[]> member(String assignor, String subscription) {
        Properties settings = new Properties();
        settings.putAll(door());
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.put("group.id", "group-" + topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        if (assignor.startsWith(NEXT)) {
            settings.put("group.protocol", "consumer");
            settings.put("group.remote.assignor", assignor.substring(NEXT.length()));
        } else {
            settings.put("heartbeat.interval.ms", "300");
            settings.put("partition.assignment.strategy", assignor);
        }
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(subscription));
        return consumer;
    }

    /** A member of a group that others are in too: says what it owns whenever that changes, until a byte comes in. */
    private void joinOthers(String assignor) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = member(CLASSIC + assignor, topic)) {
            String said = "";
            while (System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(50));
                List<String> owned = consumer.assignment().stream().map(key -> "" + key.partition()).sorted().toList();
                String now = "owns " + String.join(" ", owned);
                if (!now.equals(said)) System.out.println(now);
                said = now;
            }
        }
    }

    /** A member that says which offsets it took, then commits them, until a byte comes in; "next" for the newer protocol. */
    private void readAndCommit(String assignor) throws Exception {
        String protocol = assignor.equals("next") ? NEXT + "uniform" : CLASSIC + assignor;
        try (KafkaConsumer<byte[], byte[]> consumer = member(protocol, topic)) {
            while (System.in.available() == 0) {
                var records = consumer.poll(Duration.ofMillis(50));
                for (TopicPartition key : records.partitions()) {
                    StringBuilder took = new StringBuilder("took " + key.partition());
                    records.records(key).forEach(record -> took.append(' ').append(record.offset()));
                    System.out.println(took);
                }
                try {
                    if (!records.isEmpty()) consumer.commitSync();
                } catch (RetriableCommitFailedException | CommitFailedException | RebalanceInProgressException late) {
                    System.out.println("late " + late.getClass().getSimpleName()); // somebody else reads these again
                }
            }
        }
    }

    /** Writes a record every few milliseconds and says which were acknowledged, until a byte comes in. */
    private void writeOn(int partitions) throws Exception {
        Collection<Exception> failed = new ConcurrentLinkedQueue<>();
        String[] settings = {"enable.idempotence", "true", "acks", "all", "delivery.timeout.ms", "300000"};
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            for (int n = 0; System.in.available() == 0; n++) {
                int number = n;
                var record = new ProducerRecord<>(topic, n % partitions, text("key-" + n % (2 * partitions)), text("" + n));
                producer.send(record, (where, fault) -> {
                    if (fault == null) System.out.println("wrote " + number);
                    else failed.add(fault);
                });
                Thread.sleep(5);
            }
        }
        require(failed.isEmpty(), "not written: " + failed);
    }

    /** Polls both until they own so many partitions; returns the records of the first. */
    private static int settle(KafkaConsumer<?, ?> first, int firstCount, KafkaConsumer<?, ?> second, int secondCount) {
        int count = 0;
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S); System.nanoTime() < end;) {
            count += first.poll(Duration.ofMillis(50)).count();
            if (second != null) second.poll(Duration.ofMillis(50));
            if (first.assignment().size() == firstCount && (second == null || second.assignment().size() == secondCount)) return count;
        }
        throw new AssertionError("not settled: " + first.assignment() + (second == null ? "" : second.assignment()));
    }

    private void checkGroup(String assignor) throws Exception {
        String group = "group-" + topic;
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, 4, (short) 1))).all().get();
            send(numbered(50));
            KafkaConsumer<byte[], byte[]> first = member(assignor);
            settle(first, 4, null, 0);
            first.commitSync(Map.of(partition, new OffsetAndMetadata(17, "note")));
            KafkaConsumer<byte[], byte[]> second = member(assignor);
            settle(first, 2, second, 2);
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            require(described.members().size() == 2, "2 members: " + described);
            first.close();
            settle(second, 4, null, 0);
            OffsetAndMetadata committed = second.committed(java.util.Set.of(partition)).get(partition);
            require(committed.offset() == 17 && committed.metadata().equals("note"), "committed " + committed);
            require(admin.listGroups().all().get().stream().anyMatch(row -> row.groupId().equals(group)), "listed");
            second.close();
            admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(3))).all().get();
            var stored = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            require(stored.get(partition).offset() == 3, "altered " + stored);
            admin.deleteConsumerGroupOffsets(group, java.util.Set.of(partition)).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
            require(admin.listGroups().all().get().stream().noneMatch(row -> row.groupId().equals(group)), "deleted");
        }
    }

    /** Values of partition 0 that a reader of this isolation level gets, up to the end it sees. */
    private List<String> values(String isolation) {
        List<String> found = new ArrayList<>();
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(0, "isolation.level", isolation)) {
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            for (long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S); consumer.position(partition) < end;) {
                require(System.nanoTime() < deadline, found + " up to " + end);
                consumer.poll(Duration.ofMillis(200)).forEach(row -> found.add(new String(row.value(), StandardCharsets.UTF_8)));
            }
        }
        return found;
    }

    private List<String> named(String stem) {
        List<String> values = new ArrayList<>();
        for (int i = 0; i < 10; i++) values.add(stem + "-" + i);
        return values;
    }

    /** The scene of transactions.py; a fenced producer and the admin's view of the transaction besides. */
    private void checkTransaction() throws Exception {
        String source = topic + "-source", group = "group-" + topic, id = "id-" + topic;
        TopicPartition partition = new TopicPartition(source, 0);
        try (Admin admin = admin(); KafkaProducer<byte[], byte[]> producer = producer("transactional.id", id)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1), new NewTopic(source, 1, (short) 1))).all().get();
            try (KafkaProducer<byte[], byte[]> plain = producer()) {
                for (int i = 0; i < 10; i++) plain.send(new ProducerRecord<>(source, 0, null, text("" + i)));
            }
            KafkaConsumer<byte[], byte[]> consumer = member(CLASSIC + "RangeAssignor", source);
            int count = 0;
            for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S); count < 10;) {
                require(System.nanoTime() < end, count + " of 10 records");
                count += consumer.poll(Duration.ofMillis(200)).count();
            }
            producer.initTransactions();
            transact(producer, named("aborted"), Map.of(partition, new OffsetAndMetadata(5)), consumer);
            require(values("read_uncommitted").equals(named("aborted")), "open: " + values("read_uncommitted"));
            require(values("read_committed").isEmpty(), "open, committed: " + values("read_committed"));
            require(admin.listTransactions().all().get().stream().anyMatch(row -> row.transactionalId().equals(id)), "listed");
            var described = admin.describeTransactions(List.of(id)).all().get().get(id);
            require(described.topicPartitions().contains(new TopicPartition(topic, 0)), "described " + described);
            producer.abortTransaction();
            require(values("read_committed").isEmpty(), "aborted: " + values("read_committed"));
            transact(producer, named("committed"), Map.of(partition, new OffsetAndMetadata(10)), consumer);
            producer.commitTransaction();
            awaitCommitted();
            require(values("read_uncommitted").size() == 20, "all: " + values("read_uncommitted"));
            long offset = consumer.committed(java.util.Set.of(partition)).get(partition).offset(); // waits for the marker
            require(offset == 10, "the group's offset: " + offset);
            consumer.close();
            producer.beginTransaction();
            try (KafkaProducer<byte[], byte[]> second = producer("transactional.id", id)) {
                second.initTransactions();
                producer.send(record(null, text("fenced")));
                producer.commitTransaction();
                throw new AssertionError("a fenced producer committed");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                require(values("read_committed").equals(named("committed")), "fenced: " + values("read_committed"));
            }
        }
    }

    /** A commit is answered once it is decided; its markers, which readers wait for, follow. */
    private void awaitCommitted() {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S); !values("read_committed").equals(named("committed"));)
            require(System.nanoTime() < end, "committed: " + values("read_committed"));
    }

    private void transact(
        KafkaProducer<byte[], byte[]> producer, List<String> values, Map<TopicPartition, OffsetAndMetadata> offsets,
        KafkaConsumer<byte[], byte[]> consumer
    ) {
        producer.beginTransaction();
        for (String value : values) producer.send(record(null, text(value)));
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.flush();
    }

    /** A member of the newer group protocol (KIP-848); a static one if it has an instance id. */
    private KafkaConsumer<byte[], byte[]> consumerMember(String instance) {
        Properties settings = new Properties();
        settings.putAll(door());
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.put("group.id", "group-" + topic);
        settings.put("group.protocol", "consumer");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("metadata.max.age.ms", "1000");
        if (instance != null) settings.put("group.instance.id", instance);
        return new KafkaConsumer<>(settings);
    }

    private void checkConsumerProtocol() throws Exception {
        String group = "group-" + topic;
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, 4, (short) 1))).all().get();
            send(numbered(50));
            KafkaConsumer<byte[], byte[]> first = consumerMember(null);
            first.subscribe(List.of(topic));
            settle(first, 4, null, 0);
            first.commitSync(Map.of(partition, new OffsetAndMetadata(17, "note")));
            KafkaConsumer<byte[], byte[]> second = consumerMember("static");
            second.subscribe(List.of(topic));
            settle(first, 2, second, 2);
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            require(described.type() == GroupType.CONSUMER, "type " + described.type());
            require(described.groupState() == GroupState.STABLE, "state " + described.groupState());
            require(described.members().size() == 2, "2 members: " + described);
            var had = second.assignment();
            second.close(); // a static member keeps its place
            KafkaConsumer<byte[], byte[]> third = consumerMember("static");
            third.subscribe(List.of(topic));
            settle(first, 2, third, 2);
            require(third.assignment().equals(had), "static member has " + third.assignment() + ", had " + had);
            first.close();
            settle(third, 4, null, 0);
            var committed = third.committed(java.util.Set.of(partition)).get(partition);
            require(committed.offset() == 17 && committed.metadata().equals("note"), "committed " + committed);
            third.unsubscribe();
            third.subscribe(new SubscriptionPattern(topic + "(-more)?"));
            settle(third, 4, null, 0);
            admin.createTopics(List.of(new NewTopic(topic + "-more", 2, (short) 1))).all().get();
            settle(third, 6, null, 0);
            admin.createPartitions(Map.of(topic + "-more", NewPartitions.increaseTo(3))).all().get();
            settle(third, 7, null, 0);
            third.subscribe(new SubscriptionPattern("("));
            try {
                for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S); System.nanoTime() < end;) {
                    third.poll(Duration.ofMillis(50));
                }
                throw new AssertionError("an invalid expression is taken");
            } catch (InvalidRegularExpression expected) {
                third.close();
            }
            var members = new RemoveMembersFromConsumerGroupOptions();
            admin.removeMembersFromConsumerGroup(group, members).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
            require(admin.listGroups().all().get().stream().noneMatch(row -> row.groupId().equals(group)), "deleted");
        }
    }

    private void checkDeleteRecords() throws Exception {
        send(numbered(100), "batch.size", "1000");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            Map<TopicPartition, RecordsToDelete> request = new HashMap<>();
            request.put(partition, RecordsToDelete.beforeOffset(42));
            require(admin.deleteRecords(request).lowWatermarks().get(partition).get().lowWatermark() == 42, "low watermark");
            long start = admin.listOffsets(Collections.singletonMap(partition, OffsetSpec.earliest())).partitionResult(partition).get().offset();
            require(start == 42, "log start " + start);
        }
        require(read(42, 58).get(0).offset() == 42, "first record left");
    }
}
