/* Load driver nats-c: NATS JetStream over a bare socket. The stream and its only subject have the topic's name.
 *
 * The stream is stored in a file. A batch is PUB commands in one write. ack none publishes without a reply subject, so
 * JetStream answers nothing. one gives an inbox, to which JetStream acknowledges each message that it has written to
 * its file. disk is not available: the server flushes by a timer (sync_interval), and up to 2.9 cannot flush before the
 * acknowledgement.
 *
 * Consuming is an ephemeral push consumer without acknowledgements and with flow control, like NATS' ordered consumer.
 *
 *   PUB subject [reply] size CRLF payload CRLF
 *   MSG subject sid [reply] size CRLF payload CRLF
 *   HMSG subject sid [reply] header-size size CRLF header payload CRLF            size counts both
 */
#include <poll.h>

#include "raw_socket.h"

enum { LINE_SIZE_MAX = 4096, INFO_SIZE_MAX = 64 << 10, WORD_COUNT_MAX = 6, INPUT_SIZE = 2 << 20, LATENCY_BATCH = 64 };
static char inbox[24]; /* where answers go: each process has its own, or it would be given those of others */

typedef struct {
    int fd;
    Input input;
} Connection;

typedef struct {
    Run *run;
    Connection out, in;
    char *batch, head[LINE_SIZE_MAX]; /* PUB and its size, the same for every message */
    size_t batch_size, head_size;
    int batch_count;
} State;

/* A message that came; its parts stay until the next is asked for. */
typedef struct {
    const char *reply, *header, *payload;
    size_t reply_size, header_size, size;
} Message;

/* ---- protocol --------------------------------------------------------------------------------------------------- */

static void send_text(const Connection *c, const char *format, ...) {
    char text[LINE_SIZE_MAX];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size < 0 || size >= LINE_SIZE_MAX) fail("a command is longer than %d bytes", LINE_SIZE_MAX);
    socket_send(c->fd, text, (size_t)size);
}

/* Size of the next line with its end; 0 when it is not whole yet and is not to be waited for. */
static size_t line_size(Connection *c, bool wait) {
    for (;;) {
        const char *line = c->input.data + c->input.begin, *end = memchr(line, '\n', input_size(&c->input));
        if (end) return (size_t)(end - line) + 1;
        if (!wait) return 0;
        if (input_size(&c->input) >= INFO_SIZE_MAX) fail("the server sent a line of more than %d bytes", INFO_SIZE_MAX);
        input_fill(&c->input, INFO_SIZE_MAX);
    }
}

/* Where the words of a line begin and end, at most WORD_COUNT_MAX; how many there are. */
static int split(const char *line, size_t size, size_t begin[], size_t end[]) {
    int count = 0;
    for (size_t at = 0; at < size && count < WORD_COUNT_MAX; count++) {
        begin[count] = at;
        while (at < size && line[at] != ' ' && line[at] != '\r') at++;
        end[count] = at;
        while (at < size && (line[at] == ' ' || line[at] == '\r' || line[at] == '\n')) at++;
    }
    return count;
}

/* A line that is no message: answered where it must be. */
static void take_line(Connection *c, size_t size) {
    const char *line = c->input.data + c->input.begin;
    if (!memcmp(line, "-ERR", 4)) fail("NATS: %.*s", (int)size - 2, line);
    if (!memcmp(line, "PING", 4)) send_text(c, "PONG\r\n");
    input_take(&c->input, size);
}

/* The next message, taken; false when none is whole yet and none is to be waited for. */
static bool next_message(Connection *c, Message *message, bool wait) {
    for (size_t head; (head = line_size(c, wait));) {
        size_t begin[WORD_COUNT_MAX], end[WORD_COUNT_MAX];
        const char *line = c->input.data + c->input.begin;
        bool has_header = line[0] == 'H';
        if (line[has_header] != 'M') {
            take_line(c, head);
            continue;
        }
        int count = split(line, head, begin, end), sizes = has_header ? 2 : 1;
        if (count < 3 + sizes) fail("the server sent a message without its size");
        size_t whole = strtoul(line + begin[count - 1], NULL, 10);
        size_t header = has_header ? strtoul(line + begin[count - 2], NULL, 10) : 0;
        if (header > whole) fail("the server sent a header larger than its message");
        if (!wait && input_size(&c->input) < head + whole + 2) return false;
        line = input_need(&c->input, head + whole + 2);
        bool has_reply = count == 4 + sizes;
        *message = (Message){.header = line + head, .header_size = header, .payload = line + head + header,
                             .size = whole - header};
        if (has_reply) {
            message->reply = line + begin[3];
            message->reply_size = end[3] - begin[3];
        }
        input_take(&c->input, head + whole + 2);
        return true;
    }
    return false;
}

static Connection open_connection(const State *s) {
    Connection c = {.fd = socket_open(s->run)};
    size_t size = (size_t)s->run->size + (64 << 10);
    c.input = input_open(c.fd, size > INPUT_SIZE ? size : INPUT_SIZE);
    take_line(&c, line_size(&c, true)); /* INFO */
    send_text(&c, "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"c\",\"version\":\"0\",\"protocol\":1,"
                  "\"headers\":true,\"no_responders\":true}\r\n");
    return c;
}

/* ---- JetStream -------------------------------------------------------------------------------------------------- */

/* What JetStream answers, when it is no error. */
static void check_answer(const Message *m) {
    if (m->header_size) fail("NATS runs without JetStream: %.*s", (int)strcspn(m->header, "\r"), m->header);
    if (m->size >= 9 && memmem(m->payload, m->size, "\"error\":", 8)) fail("JetStream: %.*s", (int)m->size, m->payload);
}

/* One request to JetStream's API, before anything else comes in. */
static void ask(Connection *c, const char *subject, const char *stream, const char *request) {
    Message answer;
    send_text(c, "SUB %s.api 9\r\n", inbox);
    send_text(c, "PUB $JS.API.%s.%s %s.api %zu\r\n%s\r\n", subject, stream, inbox, strlen(request), request);
    next_message(c, &answer, true);
    check_answer(&answer);
    send_text(c, "UNSUB 9\r\n");
}

static void open_producer(State *s) {
    char request[LINE_SIZE_MAX / 2];
    const char *topic = s->run->topic;
    bool acked = s->run->ack != ACK_NONE;
    s->out = open_connection(s);
    snprintf(request, sizeof request,
             "{\"name\":\"%s\",\"subjects\":[\"%s\"],\"storage\":\"file\",\"retention\":\"limits\",\"num_replicas\":1}",
             topic, topic);
    ask(&s->out, "STREAM.CREATE", topic, request);
    if (acked) send_text(&s->out, "SUB %s.ack 1\r\n", inbox);
    int size = snprintf(s->head, sizeof s->head, "PUB %s %s%s %d\r\n", topic, acked ? inbox : "", acked ? ".ack" : "",
                        s->run->size);
    if (size >= LINE_SIZE_MAX) fail("the topic's name is too long");
    s->head_size = (size_t)size;
    s->batch = malloc((s->head_size + (size_t)s->run->size + 2) * (size_t)s->run->batch);
    if (!s->batch) fail("no memory for a batch");
}

static void append(State *s, const char *payload) {
    char *at = s->batch + s->batch_size;
    memcpy(at, s->head, s->head_size);
    memcpy(at + s->head_size, payload, (size_t)s->run->size);
    memcpy(at + s->head_size + s->run->size, "\r\n", 2);
    s->batch_size += s->head_size + (size_t)s->run->size + 2;
}

static void write_batch(State *s) {
    socket_send(s->out.fd, s->batch, s->batch_size);
    s->batch_size = 0;
    s->batch_count = 0;
}

static void send_batch(void *state, const char *payload, int64_t count) {
    for (int64_t i = 0; i < count; i++) append(state, payload);
    write_batch(state);
}

/* Waits for an acknowledgement when told to, and takes all that are here. */
static int64_t take_acks_now(State *s, bool wait) {
    Message ack;
    int64_t count = 0;
    for (; next_message(&s->out, &ack, wait && !count); count++) check_answer(&ack);
    return count;
}

static int64_t take_acks(void *state) { return take_acks_now(state, true); }

/* Back once the server has done all that was sent before. */
static void synchronise(Connection *c) {
    send_text(c, "PING\r\n");
    for (bool done = false; !done;) {
        size_t size = line_size(c, true);
        done = !memcmp(c->input.data + c->input.begin, "PONG", 4);
        take_line(c, size);
    }
}

/* Asks for the consumer on a connection of its own, since messages may overtake the answer. */
static void subscribe(const State *s, Connection *control) {
    char request[LINE_SIZE_MAX / 2];
    snprintf(request, sizeof request,
             "{\"stream_name\":\"%s\",\"config\":{\"deliver_subject\":\"%s.in\",\"deliver_policy\":\"all\","
             "\"ack_policy\":\"none\",\"replay_policy\":\"instant\",\"mem_storage\":true,\"num_replicas\":1,"
             "\"flow_control\":true,\"idle_heartbeat\":5000000000}}",
             s->run->topic, inbox);
    ask(control, "CONSUMER.CREATE", s->run->topic, request);
}

static void open_consumer(State *s) {
    s->in = open_connection(s);
    send_text(&s->in, "SUB %s.in 1\r\n", inbox);
    synchronise(&s->in);
}

static void *receive(void *state) {
    State *s = state;
    while (run_left(s->run)) {
        Message m;
        next_message(&s->in, &m, true);
        if (!m.header_size) run_take(s->run, m.payload, m.size);
        else if (m.reply) send_text(&s->in, "PUB %.*s 0\r\n\r\n", (int)m.reply_size, m.reply); /* flow control */
    }
    return NULL;
}

static void consume(State *s) {
    Connection control = open_connection(s);
    open_consumer(s);
    run_begin(s->run);
    subscribe(s, &control);
    receive(s);
    run_end(s->run);
}

/* ---- latency ---------------------------------------------------------------------------------------------------- */

static void send_one(void *state, const char *payload) {
    State *s = state;
    append(s, payload);
    if (++s->batch_count == s->run->batch) write_batch(s);
}

static void flush(void *state) {
    State *s = state;
    struct pollfd out = {.fd = s->out.fd, .events = POLLIN};
    write_batch(s);
    if (poll(&out, 1, 0) == 1) input_fill(&s->out.input, INFO_SIZE_MAX);
    take_acks_now(s, false);
}

static void latency(State *s) {
    Connection control = open_connection(s);
    s->run->batch = LATENCY_BATCH;
    open_producer(s);
    open_consumer(s);
    subscribe(s, &control);
    latency_run(s->run, s, send_one, flush, receive);
}

int main(int argc, char **argv) {
    static Run run;
    static State state = {.run = &run};
    snprintf(inbox, sizeof inbox, "_INBOX.%d", (int)getpid());
    run_open(&run, "nats-c", argc, argv);
    run_take_acks(&run, ACK_ONE, 1u << ACK_NONE | 1u << ACK_ONE);
    if (strpbrk(run.topic, ".*> /\\"))
        refuse("the topic's name is a stream's too, which has no '.', '*', '>', space or slash");
    if (run.mode == MODE_PRODUCE) {
        open_producer(&state);
        produce_in_window(&run, &state, send_batch, run.ack == ACK_NONE ? NULL : take_acks);
        synchronise(&state.out);
    } else if (run.mode == MODE_CONSUME) {
        consume(&state);
    } else {
        latency(&state);
    }
    run_report(&run, "NATS protocol 1 over a bare socket");
}
