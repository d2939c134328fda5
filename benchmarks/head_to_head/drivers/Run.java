import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;

/**
 * Common parts of the Java load drivers, from the command line to the line of JSON; driver.h is the same in C.
 *
 * <p>A latency message begins with a stamp: its due time in nanoseconds and its number from 0, both int64.
 *
 * <p>Thread rule: a daemon thread ends the program with an error if there is no progress for --timeout seconds. One
 * thread produces and one receives; each has its own counts, except for `moved`.
 */
final class Run {
    static final int STAMP_SIZE = 16;
    static final int SUB_BUCKET_BITS = 7;
    static final long LATE_NS = 1_000_000;
    static final long START_DELAY_NS = 200_000_000;
    private static final Set<String> NAMES = Set.of("host", "port", "topic", "messages", "size", "batch", "in-flight",
            "ack", "rate", "seconds", "warm-up", "timeout");
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    /** Something that may throw. */
    interface Work {
        void run() throws Exception;
    }

    /** Takes a payload. */
    interface Sender {
        void send(byte[] payload) throws Exception;
    }

    final String driver;
    final String mode;
    final String host;
    final String topic;
    final String ack;
    final int port;
    final int batch;
    final int inFlight;
    final long messages;
    final long warmUp;
    final long total;
    final double rate;
    private final double timeoutS;
    private int size;

    volatile long moved;
    long count;
    long received;
    private long bytes;
    private long sentLate;
    private long originNs;
    private long startNs;
    private long cpuStartNs;
    private long elapsedNs;
    private long cpuNs;
    private long nextMark = 1;
    private int markCount;
    private final double[] markTimes = new double[128];
    private final long[] markCounts = new long[128];
    private final long[] buckets = new long[(64 - SUB_BUCKET_BITS + 1) << SUB_BUCKET_BITS];

    /** The run that the command line asks for, its watchdog started; ends with status 2 where it makes no sense. */
    Run(String driver, String[] words) {
        this.driver = driver;
        Map<String, String> options = options(words);
        mode = words[0];
        host = options.getOrDefault("host", "127.0.0.1");
        topic = options.getOrDefault("topic", "");
        ack = options.getOrDefault("ack", "one");
        port = (int) number(options, "port", 0, 0, 65535);
        size = (int) number(options, "size", 200, 1, 64 << 20);
        batch = (int) number(options, "batch", 1, 1, 1e6);
        inFlight = (int) number(options, "in-flight", 1, 1, 1e6);
        timeoutS = number(options, "timeout", 30, 1, 1e5);
        rate = number(options, "rate", 0, 0, 1e7);
        boolean latency = mode.equals("latency");
        double seconds = number(options, "seconds", 0, 0, 1e5);
        messages = latency ? Math.round(rate * seconds) : (long) number(options, "messages", 0, 0, 1e12);
        warmUp = latency ? (long) (rate * number(options, "warm-up", 1, 0, 1e4)) : 0;
        total = warmUp + messages;
        if (port == 0 || topic.isEmpty()) refuse("--port and --topic are needed");
        if (!Set.of("none", "one", "disk").contains(ack)) refuse("--ack is none, one or disk, not '" + ack + "'");
        if (messages < 1)
            refuse(latency ? "--rate and --seconds are needed, and must make a message" : "--messages is needed");
        if (latency && size < STAMP_SIZE) refuse("--size must be at least 16: a message carries its stamp");
        Thread watchdog = new Thread(this::watch);
        watchdog.setDaemon(true);
        watchdog.start();
    }

    private Map<String, String> options(String[] words) {
        if (words.length == 0 || !Set.of("produce", "consume", "latency").contains(words[0]))
            refuse("the first argument must be produce, consume or latency");
        Map<String, String> found = new HashMap<>();
        for (int i = 1; i < words.length; i += 2) {
            String name = words[i].startsWith("--") ? words[i].substring(2) : "";
            if (!NAMES.contains(name) || i + 1 == words.length)
                refuse("an option is unknown or lacks its value: " + words[i]);
            found.put(name, words[i + 1]);
        }
        return found;
    }

    private double number(Map<String, String> options, String name, double usual, double low, double high) {
        String text = options.get(name);
        if (text == null) return usual;
        try {
            double value = Double.parseDouble(text);
            if (value >= low && value <= high) return value;
        } catch (NumberFormatException error) {
            // said below
        }
        return refuse(String.format(
                Locale.ROOT, "--%s must be a number from %d to %d, not '%s'", name, (long) low, (long) high, text));
    }

    private double refuse(String sentence) {
        return end(2, sentence);
    }

    /** Ends the program with a sentence, from any thread. */
    void fail(String sentence) {
        end(1, sentence);
    }

    private double end(int status, String sentence) {
        System.err.println(driver + ": " + sentence.lines().findFirst().orElse("it failed"));
        System.err.flush();
        Runtime.getRuntime().halt(status);
        return 0;
    }

    /** Does the work; whatever it throws ends the program with a sentence. */
    void guard(Work work) {
        try {
            work.run();
        } catch (Throwable error) {
            fail(error.getClass().getSimpleName() + ": " + error.getMessage());
        }
    }

    private void watch() {
        long seen = -1;
        for (long since = System.nanoTime(); ; LockSupport.parkNanos(100_000_000)) {
            if (moved != seen) {
                seen = moved;
                since = System.nanoTime();
            } else if (System.nanoTime() - since > timeoutS * 1e9) {
                String wait = String.valueOf(timeoutS).replaceFirst("\\.0$", "");
                fail(String.format(Locale.ROOT, "no progress for %s s after %d of %d messages", wait, seen, total));
            }
        }
    }

    void begin() {
        cpuStartNs = SYSTEM.getProcessCpuTime();
        startNs = System.nanoTime();
    }

    /** So many messages are done, from the first. */
    void advance(long done) {
        count = done;
        if (done >= nextMark && markCount < markTimes.length) {
            markTimes[markCount] = (System.nanoTime() - startNs) * 1e-9;
            markCounts[markCount++] = done;
            long step = (messages + 99) / 100;
            nextMark = done >= messages ? Long.MAX_VALUE : Math.min(done / step * step + step, messages);
        }
        moved = done; // last: who sees it sees the rest
    }

    /** Messages that have still to come. */
    long left() {
        return mode.equals("latency") ? total - received : messages - count;
    }

    /** A message came; nothing is done with what comes after the last. */
    void take(byte[] payload) {
        if (left() == 0) return;
        if (mode.equals("latency")) {
            takeStamped(payload);
            return;
        }
        if (count == 0) size = payload.length;
        if (payload.length != size) fail("message " + count + " has " + payload.length + " bytes, not " + size);
        bytes += size;
        advance(count + 1);
    }

    private void takeStamped(byte[] payload) {
        long now = System.nanoTime();
        if (payload.length != size)
            fail("a message has " + payload.length + " bytes, not " + size + "; use a new topic");
        ByteBuffer stamp = ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN);
        long due = stamp.getLong();
        long number = stamp.getLong();
        if (number != received) fail("message " + number + " arrived instead of " + received);
        received++;
        if (number >= warmUp) {
            buckets[bucketOf(Math.max(now - due, 0))]++;
            bytes += size;
            advance(number - warmUp + 1);
        }
        moved = received;
    }

    void end() {
        elapsedNs = System.nanoTime() - startNs;
        cpuNs = SYSTEM.getProcessCpuTime() - cpuStartNs;
        if (count != messages) fail(messages + " messages were asked for, " + count + " counted");
        if (mode.equals("produce")) bytes = messages * size;
    }

    /** Prints the line of JSON and ends: tearing a client down is nobody's question. */
    void report(String client) {
        StringBuilder out = new StringBuilder(8192);
        out.append(String.format(Locale.ROOT, "{\"driver\": \"%s\", \"client\": \"%s\", \"messages\": %d, "
                + "\"bytes\": %d, \"seconds\": %.6f, \"cpu_s\": %.6f, \"progress\": [",
                driver, client, messages, bytes, elapsedNs * 1e-9, cpuNs * 1e-9));
        for (int i = 0; i < markCount; i++)
            out.append(String.format(Locale.ROOT, "%s[%.6f, %d]", i == 0 ? "" : ", ", markTimes[i], markCounts[i]));
        out.append("]");
        if (mode.equals("latency")) {
            out.append(", \"sent_late\": ").append(sentLate).append(", \"histogram_us\": [");
            String separator = "";
            for (int i = 0; i < buckets.length; i++) {
                if (buckets[i] == 0) continue;
                out.append(String.format(Locale.ROOT, "%s[%.3f, %d]", separator, bucketEnd(i) / 1000.0, buckets[i]));
                separator = ", ";
            }
            out.append("]");
        }
        System.out.println(out.append("}"));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    byte[] payload() {
        byte[] payload = new byte[size];
        for (int i = 0; i < size; i++) payload[i] = (byte) ('a' + i % 26);
        return payload;
    }

    static int bucketOf(long value) {
        int shift = Math.max(63 - Long.numberOfLeadingZeros(value | 1) - SUB_BUCKET_BITS, 0);
        return (shift << SUB_BUCKET_BITS) + (int) (value >> shift);
    }

    /** The first value above the bucket. */
    static long bucketEnd(int bucket) {
        int shift = Math.max((bucket >> SUB_BUCKET_BITS) - 1, 0);
        return (long) (bucket - (shift << SUB_BUCKET_BITS) + 1) << shift;
    }

    /** Sends on schedule, each message a payload of its own; the receiver, a thread of its client's, is subscribed. */
    void latency(Sender sender) throws Exception {
        byte[] pattern = payload();
        originNs = System.nanoTime() + START_DELAY_NS;
        for (long number = 0; number < total; ) {
            for (long due = waitUntilDue(number); number < due; number++) sender.send(stamped(number, pattern.clone()));
        }
        while (moved < total) LockSupport.parkNanos(1_000_000);
        end();
    }

    private long dueNs(long number) {
        return originNs + (long) (number * 1e9 / rate);
    }

    private long waitUntilDue(long number) {
        long due = dueNs(number);
        for (long wait; (wait = due - System.nanoTime()) > 0; ) LockSupport.parkNanos(wait);
        long dueCount = (long) ((System.nanoTime() - originNs) * rate / 1e9) + 1;
        return Math.max(Math.min(dueCount, total), number + 1);
    }

    private byte[] stamped(long number, byte[] payload) {
        long due = dueNs(number);
        if (number == warmUp) begin();
        if (number >= warmUp && System.nanoTime() > due + LATE_NS) sentLate++;
        ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN).putLong(due).putLong(number);
        return payload;
    }
}
