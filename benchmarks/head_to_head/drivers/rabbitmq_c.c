/* Load driver rabbitmq-c: AMQP 0-9-1 through librabbitmq, with persistent messages in a durable classic queue.
 *
 * The queue has the topic's name. AMQP has no batches: the library writes each message separately. ack none publishes
 * without confirms. one and disk are the same: publisher confirms, which RabbitMQ sends for a persistent message in a
 * durable classic queue once it is on the disk (flushed, many messages at once). At most batch * in-flight messages are
 * unconfirmed.
 *
 * Consuming is without acknowledgements (no-ack): the broker forgets a message as it sends it. This costs the broker
 * least: a prefetch of 1000 with an acknowledgement per 250 messages took a tenth more of its time, one of 5000 a
 * third.
 */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <sys/time.h>

#include "driver.h"

enum { CHANNEL = 1, FRAME_SIZE_MAX = 131072, PERSISTENT = 2, LATENCY_WINDOW = 1 << 20 };

typedef struct {
    Run *run;
    amqp_connection_state_t out, in;
    amqp_basic_properties_t properties;
    unsigned char *confirmed; /* by delivery tag modulo window; tags above `lowest` that came out of order */
    uint64_t lowest, window;  /* every tag below `lowest` is confirmed */
} State;

static void check_reply(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) return;
    if (reply.reply_type != AMQP_RESPONSE_SERVER_EXCEPTION)
        fail("%s: %s", what, amqp_error_string2(reply.library_error));
    /* Both kinds of close begin with code and text. */
    const amqp_channel_close_t *closed = reply.reply.decoded;
    fail("%s: %d %.*s", what, closed->reply_code, (int)closed->reply_text.len, (char *)closed->reply_text.bytes);
}

static void check(amqp_connection_state_t connection, const char *what) {
    check_reply(amqp_get_rpc_reply(connection), what);
}

static void check_status(int status, const char *what) {
    if (status < 0) fail("%s: %s", what, amqp_error_string2(status));
}

static amqp_connection_state_t open_connection(const State *s) {
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = connection ? amqp_tcp_socket_new(connection) : NULL;
    if (!socket) fail("no memory for a connection");
    if (amqp_socket_open(socket, s->run->host, s->run->port))
        fail("no connection to %s:%d", s->run->host, s->run->port);
    check_reply(amqp_login(connection, "/", 0, FRAME_SIZE_MAX, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"),
                "logging in as guest");
    amqp_channel_open(connection, CHANNEL);
    check(connection, "opening a channel");
    return connection;
}

static void open_producer(State *s) {
    s->out = open_connection(s);
    amqp_queue_declare(s->out, CHANNEL, amqp_cstring_bytes(s->run->topic), 0, 1, 0, 0, amqp_empty_table);
    check(s->out, "declaring the queue");
    s->properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
    s->properties.delivery_mode = PERSISTENT;
    s->window = (uint64_t)s->run->batch * (uint64_t)s->run->in_flight;
    s->confirmed = calloc(s->window, 1);
    s->lowest = 1;
    if (!s->confirmed) fail("no memory for a window of %llu messages", (unsigned long long)s->window);
    if (s->run->ack == ACK_NONE) return;
    amqp_confirm_select(s->out, CHANNEL);
    check(s->out, "asking for confirms");
}

static void publish(void *state, const char *payload, int64_t count) {
    State *s = state;
    amqp_bytes_t key = amqp_cstring_bytes(s->run->topic);
    amqp_bytes_t body = {.len = (size_t)s->run->size, .bytes = (void *)payload};
    for (int64_t i = 0; i < count; i++) {
        int status = amqp_basic_publish(s->out, CHANNEL, amqp_empty_bytes, key, 0, 0, &s->properties, body);
        check_status(status, "publishing");
    }
}

/* Confirms may be for one message or for all up to it, and come in any order; how many messages it is for. */
static int64_t take_confirm(State *s, const amqp_basic_ack_t *ack) {
    int64_t count = 0;
    if (ack->delivery_tag < s->lowest || ack->delivery_tag >= s->lowest + s->window)
        fail("message %llu was confirmed, which does not wait", (unsigned long long)ack->delivery_tag);
    for (uint64_t tag = ack->multiple ? s->lowest : ack->delivery_tag; tag <= ack->delivery_tag; tag++) {
        count += !s->confirmed[tag % s->window];
        s->confirmed[tag % s->window] = 1;
    }
    for (; s->confirmed[s->lowest % s->window]; s->lowest++) s->confirmed[s->lowest % s->window] = 0;
    return count;
}

/* Waits so long for a confirm (NULL: as long as it takes) and takes all that came with it. */
static int64_t take_confirms_within(State *s, struct timeval *wait) {
    int64_t count = 0;
    struct timeval none = {0};
    amqp_frame_t frame;
    amqp_maybe_release_buffers(s->out);
    for (;; wait = &none) {
        int status = amqp_simple_wait_frame_noblock(s->out, &frame, wait);
        if (status == AMQP_STATUS_TIMEOUT) return count;
        check_status(status, "waiting for confirms");
        if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
            fail("a confirm was due, and a frame of another kind came: the message was refused, or the channel closed");
        count += take_confirm(s, frame.payload.method.decoded);
    }
}

static int64_t take_confirms(void *state) { return take_confirms_within(state, NULL); }

static void subscribe(State *s) {
    amqp_bytes_t queue = amqp_cstring_bytes(s->run->topic);
    amqp_basic_consume(s->in, CHANNEL, queue, amqp_empty_bytes, 0, 1, 0, amqp_empty_table);
    check(s->in, "subscribing");
}

static void *receive(void *state) {
    State *s = state;
    while (run_left(s->run)) {
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(s->in);
        amqp_rpc_reply_t reply = amqp_consume_message(s->in, &envelope, NULL, 0);
        if (reply.reply_type != AMQP_RESPONSE_NORMAL) fail("receiving: %s", amqp_error_string2(reply.library_error));
        run_take(s->run, envelope.message.body.bytes, envelope.message.body.len);
        amqp_destroy_envelope(&envelope);
    }
    return NULL;
}

static void consume(State *s) {
    s->in = open_connection(s);
    run_begin(s->run);
    subscribe(s);
    receive(s);
    run_end(s->run);
}

static void send_one(void *state, const char *payload) { publish(state, payload, 1); }

static void drain_confirms(void *state) {
    struct timeval none = {0};
    if (((State *)state)->run->ack != ACK_NONE) take_confirms_within(state, &none);
}

static void latency(State *s) {
    s->run->batch = LATENCY_WINDOW;
    open_producer(s);
    s->in = open_connection(s);
    subscribe(s);
    latency_run(s->run, s, send_one, drain_confirms, receive);
}

int main(int argc, char **argv) {
    static Run run;
    State state = {.run = &run};
    run_open(&run, "rabbitmq-c", argc, argv);
    run_take_acks(&run, ACK_ONE, 1u << ACK_NONE | 1u << ACK_ONE | 1u << ACK_DISK);
    if (run.mode == MODE_PRODUCE) {
        open_producer(&state);
        produce_in_window(&run, &state, publish, run.ack == ACK_NONE ? NULL : take_confirms);
        check_reply(amqp_connection_close(state.out, AMQP_REPLY_SUCCESS), "closing"); /* or it drops what waits */
    } else if (run.mode == MODE_CONSUME) {
        consume(&state);
    } else {
        latency(&state);
    }
    char client[64];
    snprintf(client, sizeof client, "rabbitmq-c %s", amqp_version());
    run_report(&run, client);
}
