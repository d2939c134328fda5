import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Reports the offsets that were handed out, once they are committed; the stage is called like the group. */
public final class AuditConsumerInterceptor implements ConsumerInterceptor<Object, Object> {
    private final Map<TopicPartition, List<long[]>> taken = new HashMap<>();
    private String stage;
    private KafkaProducer<byte[], byte[]> reports;

    @Override
    public void configure(Map<String, ?> configs) {
        stage = configs.get("group.id").toString();
        Map<String, Object> own = new HashMap<>(configs);
        own.keySet().removeAll(List.of("interceptor.classes", "client.id"));
        reports = new KafkaProducer<>(own, new ByteArraySerializer(), new ByteArraySerializer());
    }

    @Override
    public synchronized ConsumerRecords<Object, Object> onConsume(ConsumerRecords<Object, Object> records) {
        for (ConsumerRecord<Object, Object> record : records) {
            TopicPartition key = new TopicPartition(record.topic(), record.partition());
            List<long[]> ranges = taken.computeIfAbsent(key, unused -> new ArrayList<>());
            long[] last = ranges.isEmpty() ? null : ranges.get(ranges.size() - 1);
            if (last != null && last[1] == record.offset()) {
                last[1]++;
            } else {
                ranges.add(new long[] {record.offset(), record.offset() + 1});
            }
        }
        return records;
    }

    @Override
    public synchronized void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        offsets.forEach((key, committed) -> {
            List<long[]> waiting = new ArrayList<>();
            List<String> ready = new ArrayList<>();
            for (long[] range : taken.getOrDefault(key, List.of())) {
                long end = Math.min(range[1], committed.offset());
                if (range[0] < end) {
                    ready.add("[" + range[0] + "," + end + "]");
                }
                if (end < range[1]) {
                    waiting.add(new long[] {Math.max(range[0], end), range[1]});
                }
            }
            taken.put(key, waiting);
            if (!ready.isEmpty()) {
                String value = "{\"version\":1,\"taken\":\"" + stage + "\",\"cluster\":null,\"topic\":\"" + key.topic()
                    + "\",\"partition\":" + key.partition() + ",\"ranges\":[" + String.join(",", ready) + "]}";
                byte[] name = ("taken/" + stage + "/" + key).getBytes(StandardCharsets.UTF_8);
                reports.send(new ProducerRecord<>("kafkalite.audit", 0, name, value.getBytes(StandardCharsets.UTF_8)));
            }
        });
    }

    @Override
    public void close() {
        reports.close();
    }
}
