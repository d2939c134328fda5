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
 * activemq-java: OpenWire through ActiveMQ's own client; a queue named like the topic, persistent messages.
 *
 * <p>ack none is an asynchronous send, which the broker does not answer. one and disk are the same on this side: each
 * message is answered when it is in the journal, and by the broker's enableJournalDiskSyncs that means the page cache or
 * the disk. OpenWire has no batches: up to batch * in-flight messages are unanswered (asynchronous callbacks), which
 * the journal writes together.
 *
 * <p>Consuming prefetches PREFETCH messages and acknowledges many at once (optimizeAcknowledge), by a listener.
 */
public final class ActiveMq {
    private static final int PREFETCH = 10_000;
    private static final int LOOK_EVERY = 64;
    private static final long PAUSE_NS = 200_000;
    private static final String OPTIONS = "?jms.watchTopicAdvisories=false&jms.copyMessageOnSend=false"
            + "&jms.disableTimeStampsByDefault=true&jms.alwaysSessionAsync=false&jms.optimizeAcknowledge=true"
            + "&jms.prefetchPolicy.queuePrefetch=" + PREFETCH + "&jms.checkForDuplicates=false&jms.messagePrioritySupported=false"
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
        ActiveMQConnectionFactory factory =
                new ActiveMQConnectionFactory("tcp://" + run.host + ":" + run.port + OPTIONS + "&jms.useAsyncSend=" + run.ack.equals("none"));
        ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
        connection.setExceptionListener(error -> run.fail("the connection failed: " + error.getMessage()));
        connection.start();
        return connection;
    }

    private void openProducer() throws JMSException {
        session = (ActiveMQSession) connect().createSession(false, Session.AUTO_ACKNOWLEDGE);
        producer = (ActiveMQMessageProducer) session.createProducer(session.createQueue(run.topic));
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        producer.setDisableMessageID(true);
        producer.setDisableMessageTimestamp(true);
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
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(payload);
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
        for (; acked && answered.get() < run.messages; LockSupport.parkNanos(PAUSE_NS)) run.advance(answered.get());
        run.advance(run.messages);
        run.end();
        session.getConnection().close(); // which is answered: all came over
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
                case "produce" -> driver.produce();
                case "consume" -> driver.consume();
                default -> driver.latency();
            }
        });
        run.report("activemq-client " + ActiveMQConnectionMetaData.PROVIDER_VERSION);
    }
}
