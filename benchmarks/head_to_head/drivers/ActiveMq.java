import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import javax.jms.BytesMessage;
import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQConnectionMetaData;
import org.apache.activemq.ActiveMQMessageProducer;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.AsyncCallback;

/**
 * Load driver activemq-java: OpenWire through ActiveMQ's own client, with persistent messages.
 *
 * <p>The queue has the topic's name. ack none is an asynchronous send, which the broker does not answer. one and disk
 * are the same here: each message is answered when it is in the journal. The broker's journalDiskSyncStrategy decides
 * whether this means the page cache or the disk. A single message is answered individually, in-flight of them
 * asynchronously. A batch is a transaction, which costs the broker half as much as separate answers. in-flight is then
 * the number of sessions, each with a thread, that commit independently.
 *
 * <p>Consuming prefetches PREFETCH messages and acknowledges many at once (DUPS_OK_ACKNOWLEDGE), by a listener. The
 * default prefetch of 1000 was slower. optimizeAcknowledge was slower too, and with AUTO_ACKNOWLEDGE it stopped.
 */
public final class ActiveMq {
    private static final int PREFETCH = 10_000;
    private static final int LOOK_EVERY = 64;
    private static final long PAUSE_NS = 200_000;
    private static final String OPTIONS = "?jms.watchTopicAdvisories=false&jms.copyMessageOnSend=false"
            + "&jms.disableTimeStampsByDefault=true&jms.alwaysSessionAsync=false"
            + "&jms.prefetchPolicy.queuePrefetch=" + PREFETCH
            + "&jms.checkForDuplicates=false&jms.messagePrioritySupported=false"
            + "&wireFormat.tightEncodingEnabled=false&wireFormat.maxInactivityDuration=0"
            + "&socketBufferSize=1048576&ioBufferSize=65536";

    private final Run run;
    private final Semaphore window;
    private final AtomicLong answered = new AtomicLong();
    private ActiveMQSession session;
    private ActiveMQMessageProducer producer;

    private ActiveMq(Run run, int windowSize) {
        this.run = run;
        this.window = new Semaphore(windowSize);
    }

    private ActiveMQConnection connect() throws JMSException {
        String address = "tcp://" + run.host + ":" + run.port + OPTIONS + "&jms.useAsyncSend=" + run.ack.equals("none");
        ActiveMQConnection connection = (ActiveMQConnection) new ActiveMQConnectionFactory(address).createConnection();
        connection.setExceptionListener(error -> run.fail("the connection failed: " + error.getMessage()));
        connection.start();
        return connection;
    }

    private static ActiveMQMessageProducer open(ActiveMQSession session, String queue) throws JMSException {
        ActiveMQMessageProducer made = (ActiveMQMessageProducer) session.createProducer(session.createQueue(queue));
        made.setDeliveryMode(DeliveryMode.PERSISTENT);
        made.setDisableMessageID(true);
        made.setDisableMessageTimestamp(true);
        return made;
    }

    private static BytesMessage message(ActiveMQSession session, byte[] payload) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(payload);
        return message;
    }

    private void openProducer() throws JMSException {
        session = (ActiveMQSession) connect().createSession(false, Session.AUTO_ACKNOWLEDGE);
        producer = open(session, run.topic);
    }

    private final AsyncCallback callback = new AsyncCallback() {
        @Override
        public void onSuccess() {
            answered.incrementAndGet();
            window.release();
        }

        @Override
        public void onException(JMSException error) {
            run.fail("a message was refused: " + error.getMessage());
        }
    };

    private void send(byte[] payload) throws Exception {
        BytesMessage message = message(session, payload);
        if (run.ack.equals("none")) {
            producer.send(message);
            return;
        }
        window.acquire();
        producer.send(message, callback);
    }

    private void produce() throws Exception {
        openProducer();
        byte[] payload = run.payload();
        boolean acked = !run.ack.equals("none");
        run.begin();
        for (long sent = 1; sent <= run.messages; sent++) {
            send(payload);
            if (sent % LOOK_EVERY == 0) run.advance(acked ? answered.get() : sent);
        }
        if (acked) awaitAnswers();
        run.advance(run.messages);
        run.end();
        session.getConnection().close(); // which is answered: all came over
    }

    private void produceInTransactions() throws Exception {
        byte[] payload = run.payload();
        ActiveMQConnection connection = connect();
        AtomicLong claimed = new AtomicLong();
        Thread[] threads = new Thread[run.inFlight];
        for (int i = 0; i < threads.length; i++) {
            ActiveMQSession own = (ActiveMQSession) connection.createSession(true, Session.SESSION_TRANSACTED);
            ActiveMQMessageProducer out = open(own, run.topic);
            threads[i] = new Thread(() -> run.guard(() -> {
                for (long from; (from = claimed.getAndAdd(run.batch)) < run.messages; ) {
                    long count = Math.min(run.batch, run.messages - from);
                    for (long j = 0; j < count; j++) out.send(message(own, payload));
                    own.commit();
                    answered.addAndGet(count);
                }
            }));
        }
        run.begin();
        for (Thread thread : threads) thread.start();
        awaitAnswers();
        run.advance(run.messages);
        run.end();
    }

    private void awaitAnswers() {
        for (; answered.get() < run.messages; LockSupport.parkNanos(PAUSE_NS)) run.advance(answered.get());
    }

    private void subscribe(ActiveMQConnection connection) throws JMSException {
        Session reading = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
        MessageConsumer consumer = reading.createConsumer(reading.createQueue(run.topic));
        consumer.setMessageListener(message -> run.guard(() -> {
            BytesMessage bytes = (BytesMessage) message;
            byte[] payload = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(payload);
            run.take(payload);
        }));
    }

    private void consume() throws Exception {
        ActiveMQConnection connection = connect();
        run.begin();
        subscribe(connection);
        while (run.moved < run.messages) LockSupport.parkNanos(PAUSE_NS);
        run.end();
    }

    private void latency() throws Exception {
        openProducer();
        subscribe(connect());
        run.latency(this::send);
    }

    public static void main(String[] words) {
        Run run = new Run("activemq-java", words);
        boolean latency = run.mode.equals("latency");
        ActiveMq driver = new ActiveMq(run, latency ? 1 << 20 : run.batch * run.inFlight);
        run.guard(() -> {
            switch (run.mode) {
                case "produce" -> {
                    if (run.batch == 1 || run.ack.equals("none")) driver.produce();
                    else driver.produceInTransactions();
                }
                case "consume" -> driver.consume();
                default -> driver.latency();
            }
        });
        run.report("activemq-client " + ActiveMQConnectionMetaData.PROVIDER_VERSION);
    }
}
