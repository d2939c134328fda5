import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer and a consumer that live as long as standard input is open, whatever becomes of their broker.
 *
 * Arguments: bootstrap servers, topic, group. Each line is a command, "send N" or "read N"; the answer is the offsets
 * of partition 0 that were written or read and committed.
 */
public final class LongLived {
    private LongLived() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.idempotence", "true");
        settings.put("delivery.timeout.ms", "600000");
        settings.put("metadata.max.age.ms", "1000"); // brokers that come are known before others go
        settings.put("group.id", arguments[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        StringSerializer writes = new StringSerializer();
        StringDeserializer reads = new StringDeserializer();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, writes, writes);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, reads, reads)) {
            consumer.subscribe(List.of(arguments[1]));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                int count = Integer.parseInt(words[1]);
                StringBuilder offsets = new StringBuilder();
                if (words[0].equals("send")) {
                    for (int each = 0; each < count; each++) {
                        ProducerRecord<String, String> row = new ProducerRecord<>(arguments[1], 0, null, "java");
                        offsets.append(' ').append(producer.send(row).get().offset());
                    }
                } else {
                    int found = 0;
                    while (found < count) {
                        for (ConsumerRecord<String, String> row : consumer.poll(Duration.ofMillis(200))) {
                            offsets.append(' ').append(row.offset());
                            found++;
                        }
                    }
                    consumer.commitSync();
                }
                System.out.println(offsets.toString().strip());
            }
        }
    }
}
