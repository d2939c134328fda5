/* Load driver kafka-c: Kafka's current protocol through librdkafka, for partition 0.
 *
 * A batch is the messages of one request. A batch of one is sent at once; others wait up to 5 ms, and end at 1 MB, the
 * default limit of Kafka's broker. in-flight is the number of unanswered requests on the connection. ack: none is
 * acks=0, one is acks=1, disk is acks=all, for which the broker must be set to flush.
 *
 * Producing ends when librdkafka holds no message any more: all are answered, or with ack none handed to the kernel.
 */
#include <librdkafka/rdkafka.h>

#include "driver.h"

enum { CONSUME_COUNT_MAX = 10000, BATCH_WAIT_MS = 5, CHECK_EVERY = 1024 };

typedef struct {
    Run *run;
    rd_kafka_t *producer, *consumer;
    rd_kafka_topic_t *out, *in;
    rd_kafka_queue_t *events;
} State;

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, key, value, error, sizeof error)) fail("librdkafka does not take %s: %s", key, error);
}

static void set_number(rd_kafka_conf_t *conf, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    set(conf, key, text);
}

static rd_kafka_t *open_client(const Run *run, rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char text[512];
    snprintf(text, sizeof text, "%s:%d", run->host, run->port);
    set(conf, "bootstrap.servers", text);
    set(conf, "log_level", "0"); /* what matters ends the run with a sentence */
    rd_kafka_t *client = rd_kafka_new(type, conf, text, sizeof text);
    if (!client) fail("no client: %s", text);
    return client;
}

/* A little less than the watchdog waits, since librdkafka knows more about what is wrong. */
static int timeout_ms(const Run *run) { return (int)(run->timeout_s * 900); }

/* The topic, once the broker knows it: asking for its metadata makes it where the broker does so. */
static rd_kafka_topic_t *open_topic(const Run *run, rd_kafka_t *client) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, run->topic, NULL);
    if (!topic) fail("topic %s: %s", run->topic, rd_kafka_err2str(rd_kafka_last_error()));
    for (;; usleep(10000)) { /* the watchdog ends it */
        const struct rd_kafka_metadata *metadata;
        rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, topic, &metadata, timeout_ms(run));
        if (error) fail("the broker at %s:%d gave no metadata: %s", run->host, run->port, rd_kafka_err2str(error));
        const rd_kafka_metadata_topic_t *found = metadata->topics;
        bool known = metadata->topic_cnt == 1 && !found->err && found->partition_cnt > 0 && !found->partitions[0].err;
        rd_kafka_metadata_destroy(metadata);
        if (known) return topic;
    }
}

static void open_producer(State *s, int batch, int wait_ms) {
    static const char *const acks[] = {"0", "1", "all"};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", acks[s->run->ack]);
    set_number(conf, "batch.num.messages", batch);
    set_number(conf, "linger.ms", wait_ms);
    set_number(conf, "max.in.flight.requests.per.connection", s->run->in_flight);
    set(conf, "delivery.report.only.error", "true");
    set(conf, "retries", "0"); /* a message that is sent twice would be counted once */
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
    s->producer = open_client(s->run, RD_KAFKA_PRODUCER, conf);
    s->events = rd_kafka_queue_get_main(s->producer);
    s->out = open_topic(s->run, s->producer);
}

/* Only failures are reported, and the first one ends the run. */
static void check_reports(const State *s, int wait_ms) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(s->events, wait_ms);
    if (!event) return;
    const rd_kafka_message_t *message = rd_kafka_event_message_next(event);
    if (message && message->err) fail("a message was not delivered: %s", rd_kafka_err2str(message->err));
    rd_kafka_event_destroy(event);
}

static void enqueue(const State *s, const char *payload) {
    while (rd_kafka_produce(s->out, 0, RD_KAFKA_MSG_F_COPY, (void *)payload, (size_t)s->run->size, NULL, 0, NULL)) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            fail("librdkafka took no message: %s", rd_kafka_err2str(rd_kafka_last_error()));
        check_reports(s, 1);
    }
}

static void produce(State *s) {
    Run *run = s->run;
    open_producer(s, run->batch, run->batch > 1 ? BATCH_WAIT_MS : 0);
    char *payload = make_payload(run);
    int64_t sample = run->messages / 100 < CHECK_EVERY ? run->messages / 100 + 1 : CHECK_EVERY;
    run_begin(run);
    for (int64_t i = 0; i < run->messages; i++) {
        enqueue(s, payload);
        if (i % sample == 0) {
            check_reports(s, 0);
            run_advance(run, i + 1 - rd_kafka_outq_len(s->producer));
        }
    }
    while (rd_kafka_flush(s->producer, 5)) {
        check_reports(s, 0);
        run_advance(run, run->messages - rd_kafka_outq_len(s->producer));
    }
    check_reports(s, 0);
    run_advance(run, run->messages);
    run_end(run);
    rd_kafka_topic_destroy(open_topic(run, s->producer)); /* an answer from behind what acks=0 sent: all came over */
}

static void open_consumer(State *s) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "auto.offset.reset", "error");
    s->consumer = open_client(s->run, RD_KAFKA_CONSUMER, conf);
    s->in = open_topic(s->run, s->consumer);
}

static void start_consumer(State *s, int64_t offset) {
    if (rd_kafka_consume_start(s->in, 0, offset)) fail("no fetching: %s", rd_kafka_err2str(rd_kafka_last_error()));
}

static void check_message(const rd_kafka_message_t *message) {
    if (message->err) fail("fetching failed: %s", rd_kafka_message_errstr(message));
}

static void consume(State *s) {
    Run *run = s->run;
    rd_kafka_message_t **messages = calloc(CONSUME_COUNT_MAX, sizeof *messages);
    open_consumer(s);
    run_begin(run);
    start_consumer(s, RD_KAFKA_OFFSET_BEGINNING);
    while (run->count < run->messages) {
        int64_t left = run->messages - run->count;
        size_t most = left < CONSUME_COUNT_MAX ? (size_t)left : CONSUME_COUNT_MAX;
        ssize_t n = rd_kafka_consume_batch(s->in, 0, 100, messages, most);
        if (n < 0) fail("fetching failed: %s", rd_kafka_err2str(rd_kafka_last_error()));
        for (ssize_t i = 0; i < n; i++) {
            check_message(messages[i]);
            run_take(run, messages[i]->payload, messages[i]->len);
            rd_kafka_message_destroy(messages[i]);
        }
    }
    run_end(run);
}

static void send_one(void *state, const char *payload) { enqueue(state, payload); }

static void check_sent(void *state) { check_reports(state, 0); }

static void on_message(rd_kafka_message_t *message, void *opaque) {
    check_message(message);
    run_take(opaque, message->payload, message->len);
}

static void *receive(void *state) {
    State *s = state;
    while (run_left(s->run)) rd_kafka_consume_callback(s->in, 0, 100, on_message, s->run);
    return NULL;
}

static void latency(State *s) {
    s->run->in_flight = 5;
    open_producer(s, 10000, 0);
    open_consumer(s);
    int64_t low, end;
    rd_kafka_resp_err_t error =
        rd_kafka_query_watermark_offsets(s->consumer, s->run->topic, 0, &low, &end, timeout_ms(s->run));
    if (error) fail("no end of topic %s: %s", s->run->topic, rd_kafka_err2str(error));
    start_consumer(s, end);
    latency_run(s->run, s, send_one, check_sent, receive);
}

int main(int argc, char **argv) {
    static Run run;
    State state = {.run = &run};
    run_open(&run, "kafka-c", argc, argv);
    run_take_acks(&run, ACK_ONE, 1u << ACK_NONE | 1u << ACK_ONE | 1u << ACK_DISK);
    if (run.mode == MODE_PRODUCE) produce(&state);
    else if (run.mode == MODE_CONSUME) consume(&state);
    else latency(&state);
    char client[64];
    snprintf(client, sizeof client, "librdkafka %s", rd_kafka_version_str());
    run_report(&run, client);
}
