import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.StringJoiner;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own client in the workload of tests/cluster: an idempotent producer, a transactional one, and a member
 * of a group of the newer protocol. Writes the events that tests/cluster/judge.py knows, and ends when its standard
 * input does.
 *
 * Arguments: bootstrap servers, seed, partitions of a topic, the group's name, the topic of plain records, and the
 * topics of transactions with commas, the latter two each as name=number of its first place.
 */
public final class JavaClients {
    private static final int PLAIN_PRODUCER = 50;
    private static final int TRANSACTIONAL_PRODUCER = 150;
    private static final int RECORD_PAUSE_MS = 10;
    private static final int TRANSACTION_PAUSE_MS = 50;
    private static final int VALUE_SIZE = 100;
    private static final int COMMIT_TRIES = 10;
    private static volatile boolean ending = false;
    private static boolean failed = false;

    private final String bootstrap;
    private final long seed;
    private final int partitions;

    private JavaClients(String bootstrap, long seed, int partitions) {
        this.bootstrap = bootstrap;
        this.seed = seed;
        this.partitions = partitions;
    }

    /** A topic and the number of its first partition among those of all topics. */
    private record Topic(String name, int firstPlace) {
        static Topic of(String text) {
            return new Topic(text.split("=")[0], Integer.parseInt(text.split("=")[1]));
        }
    }

    private interface Task {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        JavaClients clients =
            new JavaClients(arguments[0], Long.parseLong(arguments[1]), Integer.parseInt(arguments[2]));
        Topic plain = Topic.of(arguments[4]);
        List<Topic> wide = new ArrayList<>();
        for (String text : arguments[5].split(",")) {
            wide.add(Topic.of(text));
        }
        List<Thread> threads = List.of(
            thread(() -> clients.produce(plain)), thread(() -> clients.transact(wide)),
            thread(() -> clients.read(arguments[3], plain)));
        while (readByte() >= 0) {
        }
        ending = true;
        for (Thread thread : threads) {
            thread.join();
        }
        System.exit(failed ? 1 : 0);
    }

    private static int readByte() throws IOException {
        return System.in.read();
    }

    private static Thread thread(Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (Exception error) {
                error.printStackTrace();
                failed = true;
            }
        });
        thread.start();
        return thread;
    }

    private static void tell(String format, Object... values) {
        String line = String.format(Locale.ROOT, format, values) + "\n";
        synchronized (System.out) {
            System.out.print(line);
            System.out.flush();
        }
    }

    private static void tellSent(int producer, int place, String transaction) {
        tell("{\"event\":\"sent\",\"producer\":%d,\"place\":%d,\"count\":1,\"transaction\":%s}",
            producer, place, transaction);
    }

    private static byte[] value(int producer, int place, long sequence) {
        String text = producer + "/" + place + "/" + sequence + ";";
        return text.repeat(VALUE_SIZE / text.length() + 1).substring(0, VALUE_SIZE).getBytes(StandardCharsets.UTF_8);
    }

    private static int checksum(byte[] data, int size) {
        CRC32 crc = new CRC32();
        crc.update(data, 0, size);
        return (int) crc.getValue();
    }

    /** As tests/kit/checkers/ledger.py names records. */
    private static byte[] key(int producer, int place, long sequence, byte[] value) {
        ByteBuffer buffer = ByteBuffer.allocate(30);
        buffer.put((byte) 'K').put((byte) 'L').putInt(producer).putInt(place).putLong(sequence);
        buffer.putInt(value.length).putInt(checksum(value, value.length));
        buffer.putInt(checksum(buffer.array(), 26));
        return buffer.array();
    }

    private Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("reconnect.backoff.max.ms", "200");
        properties.put("request.timeout.ms", "6000");
        return properties;
    }

    private KafkaProducer<byte[], byte[]> producer(String transactionalId) {
        Properties properties = common();
        properties.put("acks", "all");
        properties.put("linger.ms", "2");
        if (transactionalId != null) {
            properties.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void produce(Topic topic) throws InterruptedException {
        Random random = new Random(seed);
        long[] next = new long[partitions];
        try (KafkaProducer<byte[], byte[]> producer = producer(null)) {
            while (!ending) {
                int partition = random.nextInt(partitions);
                int place = topic.firstPlace() + partition;
                long sequence = next[partition]++;
                tellSent(PLAIN_PRODUCER, place, "null");
                byte[] value = value(PLAIN_PRODUCER, place, sequence);
                byte[] key = key(PLAIN_PRODUCER, place, sequence, value);
                producer.send(new ProducerRecord<>(topic.name(), partition, key, value), (metadata, error) -> {
                    if (error == null) {
                        tell("{\"event\":\"acknowledged\",\"producer\":%d,\"records\":[[%d,%d,%d]]}",
                            PLAIN_PRODUCER, place, sequence, metadata.offset());
                    } else {
                        tell("{\"event\":\"failed\",\"producer\":%d,\"records\":[[%d,%d]],\"error\":\"%s\"}",
                            PLAIN_PRODUCER, place, sequence, error.getClass().getSimpleName());
                    }
                });
                Thread.sleep(RECORD_PAUSE_MS);
            }
        }
    }

    private void transact(List<Topic> topics) throws InterruptedException {
        Random random = new Random(seed);
        Map<Integer, Long> next = new HashMap<>();
        KafkaProducer<byte[], byte[]> producer = null;
        for (int number = 0; !ending; number++) {
            String outcome = "unknown";
            tell("{\"event\":\"begun\",\"producer\":%d,\"transaction\":%d}", TRANSACTIONAL_PRODUCER, number);
            try {
                if (producer == null) {
                    producer = producer("java-clients");
                    producer.initTransactions();
                }
                producer.beginTransaction();
                for (int count = 1 + random.nextInt(10); count > 0; count--) {
                    send(producer, topics.get(random.nextInt(topics.size())), random.nextInt(partitions), number, next);
                }
                outcome = end(producer, random.nextInt(4) > 0);
            } catch (KafkaException error) {
                System.err.println("transaction " + number + ": " + error);
                producer.close(Duration.ZERO);
                producer = null;
            }
            tell("{\"event\":\"ended\",\"producer\":%d,\"transaction\":%d,\"outcome\":\"%s\"}",
                TRANSACTIONAL_PRODUCER, number, outcome);
            Thread.sleep(TRANSACTION_PAUSE_MS);
        }
        if (producer != null) {
            producer.close();
        }
    }

    private void send(
        KafkaProducer<byte[], byte[]> producer, Topic topic, int partition, int transaction, Map<Integer, Long> next) {
        int place = topic.firstPlace() + partition;
        long sequence = next.merge(place, 1L, Long::sum) - 1;
        tellSent(TRANSACTIONAL_PRODUCER, place, String.valueOf(transaction));
        byte[] value = value(TRANSACTIONAL_PRODUCER, place, sequence);
        byte[] key = key(TRANSACTIONAL_PRODUCER, place, sequence, value);
        producer.send(new ProducerRecord<>(topic.name(), partition, key, value));
    }

    /** A commit that nobody answered in time may be asked for again, and nothing else. */
    private static String end(KafkaProducer<byte[], byte[]> producer, boolean commit) {
        for (int tries = COMMIT_TRIES;; tries--) {
            try {
                if (commit) {
                    producer.commitTransaction();
                    return "committed";
                }
                producer.abortTransaction();
                return "aborted";
            } catch (TimeoutException error) {
                if (tries == 1) {
                    throw error;
                }
            }
        }
    }

    private void read(String group, Topic topic) {
        Properties properties = common();
        properties.put("group.id", group);
        properties.put("group.protocol", "consumer");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("fetch.max.wait.ms", "100");
        Map<Integer, Integer> stretches = new HashMap<>();
        int[] stretch = new int[1];
        try (KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic.name()), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                    assigned.forEach(part -> stretches.put(part.partition(), stretch[0]++));
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                }
            });
            while (!ending) {
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                StringJoiner told = new StringJoiner(",");
                var records = consumer.poll(Duration.ofMillis(100));
                for (TopicPartition part : records.partitions()) {
                    StringJoiner given = new StringJoiner(",");
                    int place = topic.firstPlace() + part.partition();
                    for (ConsumerRecord<byte[], byte[]> record : records.records(part)) {
                        given.add(String.format("[%d,%d,\"%s\"]", place, record.offset(), hex(record.key())));
                        positions.put(part, new OffsetAndMetadata(record.offset() + 1));
                    }
                    tell("{\"event\":\"given\",\"reader\":\"%s/%d\",\"group\":\"%s\",\"records\":[%s]}", group,
                        stretches.get(part.partition()), group, given);
                    told.add(String.format("\"%d\":%d", place, positions.get(part).offset()));
                }
                if (positions.isEmpty()) {
                    continue;
                }
                try {
                    consumer.commitSync(positions);
                    tell("{\"event\":\"committed\",\"group\":\"%s\",\"at\":%.6f,\"positions\":{%s}}", group,
                        System.nanoTime() / 1e9, told);
                } catch (KafkaException error) {
                    System.err.println("commit: " + error);
                }
            }
        }
    }

    private static String hex(byte[] data) {
        StringBuilder text = new StringBuilder();
        for (byte one : data) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }
}
