// Dead letters as Spring Kafka, Kafka Connect and Kafka Streams write them, and as they read those of others.
//
//     Letters BOOTSTRAP write spring|connect|streams TOPIC     TOPIC gets a letter of orders-0-5
//     Letters BOOTSTRAP read spring|connect TOPIC              prints the letters of TOPIC, a line name=value each
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.runtime.ConnectMetrics;
import org.apache.kafka.connect.runtime.SinkConnectorConfig;
import org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter;
import org.apache.kafka.connect.runtime.errors.ErrorHandlingMetrics;
import org.apache.kafka.connect.runtime.errors.ProcessingContext;
import org.apache.kafka.connect.runtime.errors.Stage;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.ListenerExecutionFailedException;
import org.springframework.kafka.support.KafkaHeaders;

public final class Letters {
    private static final RuntimeException CAUSE = new IllegalStateException("no such customer");

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], what = args[1] + " " + args[2], topic = args[3];
        switch (what) {
            case "write spring" -> spring(bootstrap, topic);
            case "write connect" -> connect(bootstrap, topic);
            case "write streams" -> streams(bootstrap, topic);
            case "read spring" -> read(bootstrap, topic, false);
            case "read connect" -> read(bootstrap, topic, true);
            default -> throw new IllegalArgumentException(what);
        }
        System.exit(0); // threads of Spring and Connect would wait
    }

    private static ConsumerRecord<byte[], byte[]> record() {
        Headers headers = new RecordHeaders().add("trace", bytes("7"));
        return new ConsumerRecord<>(
            "orders", 0, 5, 1_700_000_000_000L, TimestampType.CREATE_TIME, 1, 1, bytes("k"), bytes("5"), headers,
            java.util.Optional.empty());
    }

    private static void spring(String bootstrap, String topic) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        var factory = new DefaultKafkaProducerFactory<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        var template = new KafkaTemplate<>(factory);
        var recoverer = new DeadLetterPublishingRecoverer(template, (record, error) -> new TopicPartition(topic, 0));
        recoverer.accept(record(), null, new ListenerExecutionFailedException("listener failed", "billing", CAUSE));
        factory.destroy();
    }

    private static void connect(String bootstrap, String topic) throws Exception {
        Map<String, String> worker = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "key.converter", "org.apache.kafka.connect.json.JsonConverter",
            "value.converter", "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.file.filename", "unused"));
        Map<String, String> sink = new HashMap<>(Map.of(
            "name", "my-sink", "connector.class", "Sink", "topics", "orders", "errors.tolerance", "all",
            "errors.deadletterqueue.topic.name", topic, "errors.deadletterqueue.topic.replication.factor", "1",
            "errors.deadletterqueue.context.headers.enable", "true"));
        ConnectorTaskId task = new ConnectorTaskId("my-sink", 0);
        ConnectMetrics metrics = new ConnectMetrics("worker", new StandaloneConfig(worker), Time.SYSTEM, "cluster");
        Map<String, Object> client = Map.of(
            "bootstrap.servers", bootstrap, "key.serializer", ByteArraySerializer.class,
            "value.serializer", ByteArraySerializer.class);
        var config = new SinkConnectorConfig(new Plugins(Map.of()), sink);
        try (var reporter = DeadLetterQueueReporter.createAndSetup(
                Map.of("bootstrap.servers", bootstrap), task, config, client, new ErrorHandlingMetrics(task, metrics))) {
            ProcessingContext<ConsumerRecord<byte[], byte[]>> context = new ProcessingContext<>(record());
            context.currentContext(Stage.TASK_PUT, Letters.class);
            context.error(CAUSE);
            reporter.report(context).get();
        }
    }

    private static void streams(String bootstrap, String topic) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-" + topic);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put("auto.offset.reset", "earliest");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(
            StreamsConfig.PROCESSING_EXCEPTION_HANDLER_CLASS_CONFIG, LogAndContinueProcessingExceptionHandler.class);
        settings.put(StreamsConfig.ERRORS_DEAD_LETTER_QUEUE_TOPIC_NAME_CONFIG, topic);
        CountDownLatch past = new CountDownLatch(1);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream("orders").foreach((key, value) -> {
            if (new String(value, StandardCharsets.UTF_8).equals("5")) throw CAUSE;
            if (new String(value, StandardCharsets.UTF_8).equals("39")) past.countDown();
        });
        try (KafkaStreams app = new KafkaStreams(builder.build(), settings)) {
            app.start();
            past.await();
        }
    }

    private static void read(String bootstrap, String topic, boolean connect) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition place = new TopicPartition(topic, 0);
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end) {
                for (ConsumerRecord<byte[], byte[]> letter : consumer.poll(Duration.ofSeconds(1))) {
                    print("value", letter.value());
                    if (connect) connectHeaders(letter.headers()); else springHeaders(letter.headers());
                }
            }
        }
    }

    private static void springHeaders(Headers headers) {
        for (String name : List.of(
                KafkaHeaders.DLT_ORIGINAL_TOPIC, KafkaHeaders.DLT_ORIGINAL_CONSUMER_GROUP,
                KafkaHeaders.DLT_ORIGINAL_TIMESTAMP_TYPE, KafkaHeaders.DLT_EXCEPTION_FQCN,
                KafkaHeaders.DLT_EXCEPTION_MESSAGE)) {
            print(name, last(headers, name));
        }
        System.out.println(KafkaHeaders.DLT_ORIGINAL_PARTITION + "="
            + ByteBuffer.wrap(last(headers, KafkaHeaders.DLT_ORIGINAL_PARTITION)).getInt());
        for (String name : List.of(KafkaHeaders.DLT_ORIGINAL_OFFSET, KafkaHeaders.DLT_ORIGINAL_TIMESTAMP)) {
            System.out.println(name + "=" + ByteBuffer.wrap(last(headers, name)).getLong());
        }
    }

    private static void connectHeaders(Headers headers) {
        for (String name : List.of(
                DeadLetterQueueReporter.ERROR_HEADER_ORIG_TOPIC, DeadLetterQueueReporter.ERROR_HEADER_ORIG_PARTITION,
                DeadLetterQueueReporter.ERROR_HEADER_ORIG_OFFSET, DeadLetterQueueReporter.ERROR_HEADER_CONNECTOR_NAME,
                DeadLetterQueueReporter.ERROR_HEADER_EXCEPTION,
                DeadLetterQueueReporter.ERROR_HEADER_EXCEPTION_MESSAGE)) {
            print(name, last(headers, name));
        }
    }

    private static byte[] last(Headers headers, String name) {
        Header found = headers.lastHeader(name);
        if (found == null) throw new IllegalStateException("no header " + name);
        return found.value();
    }

    private static void print(String name, byte[] value) {
        System.out.println(name + "=" + new String(value, StandardCharsets.UTF_8));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
