import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Marks each message in the header kafkalite.audit, and sends counts of windows to the topic of that name. */
public final class AuditProducerInterceptor implements ProducerInterceptor<Object, Object> {
    private static final String AUDIT = "kafkalite.audit";

    private static final class Span {
        long first, end;
        final TreeMap<Long, Long> windows = new TreeMap<>();
    }

    private final long run = new SecureRandom().nextLong();
    private final Map<String, Span> spans = new HashMap<>();
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(work -> {
        Thread thread = new Thread(work, "audit");
        thread.setDaemon(true);
        return thread;
    });
    private String server;
    private long windowMs;
    private KafkaProducer<byte[], byte[]> counts;

    @Override
    public void configure(Map<String, ?> configs) {
        server = configs.get("audit.server").toString();
        Object window = configs.get("audit.window.ms");
        windowMs = window == null ? 60_000 : Long.parseLong(window.toString());
        Map<String, Object> own = new HashMap<>(configs);
        own.keySet().removeAll(java.util.List.of("interceptor.classes", "transactional.id", "client.id"));
        counts = new KafkaProducer<>(own, new ByteArraySerializer(), new ByteArraySerializer());
        timer.scheduleAtFixedRate(this::report, 10, 10, TimeUnit.SECONDS);
    }

    @Override
    public synchronized ProducerRecord<Object, Object> onSend(ProducerRecord<Object, Object> record) {
        long time = record.timestamp() == null ? System.currentTimeMillis() : record.timestamp();
        Span span = spans.computeIfAbsent(record.topic(), topic -> new Span());
        byte[] name = server.getBytes(StandardCharsets.UTF_8);
        ByteBuffer mark = ByteBuffer.allocate(25 + name.length);
        mark.put((byte) 1).putLong(run).putLong(span.end++).putLong(time).put(name);
        span.windows.merge(Math.floorDiv(time, windowMs) * windowMs, 1L, Long::sum);
        record.headers().add(AUDIT, mark.array());
        return new ProducerRecord<>(
            record.topic(), record.partition(), time, record.key(), record.value(), record.headers());
    }

    private synchronized void report() {
        spans.forEach((topic, span) -> {
            if (span.end == span.first) {
                return;
            }
            StringBuilder windows = new StringBuilder();
            span.windows.forEach((start, count) ->
                windows.append(windows.isEmpty() ? "" : ",").append("[" + start + "," + count + "]"));
            String name = String.format("%016x", run);
            String key = name + "/" + span.first + "/0/" + topic;
            String value = "{\"version\":1,\"run\":\"" + name + "\",\"server\":\"" + server + "\",\"topic\":\"" + topic
                + "\",\"window_ms\":" + windowMs + ",\"first\":" + span.first + ",\"end\":" + span.end
                + ",\"part\":0,\"counts\":[" + windows + "]}";
            counts.send(new ProducerRecord<>(
                AUDIT, 0, key.getBytes(StandardCharsets.UTF_8), value.getBytes(StandardCharsets.UTF_8)));
            span.first = span.end;
            span.windows.clear();
        });
    }

    @Override
    public void onAcknowledgement(RecordMetadata metadata, Exception exception) {}

    @Override
    public void close() {
        timer.shutdownNow();
        report();
        counts.close();
    }
}
