import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;

/**
 * Prints Apache Kafka's metadata hash of each topic of a cluster, then that of a group that reads all of them.
 *
 * The cluster comes on standard input, a line for each thing, its words separated by tabs:
 *   broker  ID  [RACK]
 *   topic  NAME  ID (32 hexadecimal digits)  REPLICAS of each partition (1,2,3)...
 */
public class MetadataHashes {
    public static void main(String[] arguments) throws Exception {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        List<String> names = new ArrayList<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("broker")) {
                int id = Integer.parseInt(words[1]);
                delta.replay(new RegisterBrokerRecord().setBrokerId(id).setRack(words.length > 2 ? words[2] : null));
            } else {
                names.add(words[1]);
                addTopic(delta, words);
            }
        }
        MetadataImage image = delta.apply(new MetadataProvenance(0, 0, 0, true));
        Map<String, Long> hashes = new HashMap<>();
        for (String name : names) {
            hashes.put(name, topicHash(name, image));
            System.out.println(hashes.get(name));
        }
        System.out.println(Utils.computeGroupHash(hashes));
    }

    private static void addTopic(MetadataDelta delta, String[] words) {
        BigInteger number = new BigInteger(words[2], 16);
        Uuid id = new Uuid(number.shiftRight(64).longValue(), number.longValue());
        delta.replay(new TopicRecord().setName(words[1]).setTopicId(id));
        for (int partition = 0; partition < words.length - 3; partition++) {
            List<Integer> replicas = new ArrayList<>();
            for (String replica : words[partition + 3].split(",")) {
                replicas.add(Integer.parseInt(replica));
            }
            delta.replay(new PartitionRecord().setTopicId(id).setPartitionId(partition).setReplicas(replicas)
                .setIsr(replicas).setLeader(replicas.get(0)));
        }
    }

    /** Of a release that hashes an image, or of a later one, which hashes a view of it. */
    private static long topicHash(String name, MetadataImage image) throws Exception {
        for (Method method : Utils.class.getDeclaredMethods()) {
            if (method.getName().equals("computeTopicHash")) {
                Object metadata = image;
                if (method.getParameterTypes()[1] != MetadataImage.class) {
                    metadata = Class.forName("org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage")
                        .getConstructor(MetadataImage.class).newInstance(image);
                }
                return (long) method.invoke(null, name, metadata);
            }
        }
        throw new IllegalStateException("this release has no hash of a topic");
    }
}
