/* Load driver redis-c: Redis streams through hiredis. The stream's key is the topic, and a message is an entry's only
 * field.
 *
 * A batch is XADD commands in one write (pipelining). ack none switches replies off (CLIENT REPLY OFF). one is a reply
 * to each XADD. disk is the same, if the server runs with appendfsync always, which flushes before it replies.
 *
 * Consuming is XREAD of 1000 entries after the last one, without groups or acknowledgements. Replies are passed to
 * functions of this program instead of hiredis' tree of objects, so nothing is allocated per message. While the stream
 * is empty, XREAD BLOCK waits.
 */
#include <hiredis/hiredis.h>
#include <poll.h>

#include "driver.h"

enum { COUNT_MAX = 1000, ID_SIZE_MAX = 64, DEPTH_ID = 4, DEPTH_FIELD = 5 };

typedef struct {
    Run *run;
    redisContext *out, *in;
    char id[ID_SIZE_MAX]; /* of the last entry that came */
} State;

static redisContext *open_connection(const State *s) {
    redisContext *context = redisConnect(s->run->host, s->run->port);
    if (!context || context->err)
        fail("no connection to %s:%d: %s", s->run->host, s->run->port, context ? context->errstr : "no memory");
    return context;
}

__attribute__((noreturn)) static void fail_of(const redisContext *context) { fail("Redis: %s", context->errstr); }

/* ---- replies ---------------------------------------------------------------------------------------------------- */

/* XREAD answers [[key, [[id, [field, value]], ...]]]: how deep a part stands, and its place there, say what it is. */
static int depth_of(const redisReadTask *task) {
    int depth = 0;
    for (; task->parent; task = task->parent) depth++;
    return depth;
}

static void *take_string(const redisReadTask *task, char *text, size_t size) {
    State *s = task->privdata;
    int depth = depth_of(task);
    if (task->type == REDIS_REPLY_ERROR) fail("Redis: %.*s", (int)size, text);
    if (depth == DEPTH_ID && task->idx == 0) {
        if (size >= ID_SIZE_MAX) fail("an entry's id has %zu bytes", size);
        memcpy(s->id, text, size);
        s->id[size] = 0;
    } else if (depth == DEPTH_FIELD && task->idx == 1) {
        run_take(s->run, text, size);
    }
    return s;
}

#if HIREDIS_MAJOR >= 1
typedef size_t Count;
#else
typedef int Count;
#endif

static void *take_array(const redisReadTask *task, Count count) { (void)count; return task->privdata; }
static void *take_integer(const redisReadTask *task, long long value) { (void)value; return task->privdata; }
static void *take_nil(const redisReadTask *task) { return task->privdata; }
static void free_nothing(void *reply) { (void)reply; }

static redisReplyObjectFunctions functions = {.createString = take_string, .createArray = take_array,
                                              .createInteger = take_integer, .createNil = take_nil,
                                              .freeObject = free_nothing};

static redisContext *open_reader(State *s) {
    redisContext *context = open_connection(s);
    context->reader->fn = &functions;
    context->reader->privdata = s;
    return context;
}

/* ---- producing -------------------------------------------------------------------------------------------------- */

static void write_all(redisContext *context) {
    for (int done = 0; !done;)
        if (redisBufferWrite(context, &done)) fail_of(context);
}

static void open_producer(State *s) {
    s->out = open_reader(s);
    if (s->run->ack != ACK_NONE) return;
    redisAppendCommand(s->out, "CLIENT REPLY OFF");
    write_all(s->out);
}

static void append(State *s, const char *payload) {
    const char *words[] = {"XADD", s->run->topic, "*", "d", payload};
    size_t sizes[] = {4, strlen(s->run->topic), 1, 1, (size_t)s->run->size};
    char *command;
    int size = (int)redisFormatCommandArgv(&command, 5, words, sizes);
    if (size < 0 || redisAppendFormattedCommand(s->out, command, (size_t)size)) fail("no memory for a command");
    redisFreeCommand(command);
}

static void send_batch(void *state, const char *payload, int64_t count) {
    State *s = state;
    for (int64_t i = 0; i < count; i++) append(s, payload);
    write_all(s->out);
}

/* Replies that are here already. */
static int64_t take_read(State *s) {
    int64_t count = 0;
    for (void *reply = s; reply;) {
        if (redisReaderGetReply(s->out->reader, &reply)) fail("Redis: %s", s->out->reader->errstr);
        count += reply != NULL;
    }
    return count;
}

static int64_t take_replies(void *state) {
    State *s = state;
    int64_t count;
    while (!(count = take_read(s)))
        if (redisBufferRead(s->out)) fail_of(s->out);
    return count;
}

/* ---- consuming -------------------------------------------------------------------------------------------------- */

static void *receive(void *state) {
    State *s = state;
    strcpy(s->id, "0-0");
    while (run_left(s->run)) {
        void *reply;
        char command[1024];
        int most = run_left(s->run) < COUNT_MAX ? (int)run_left(s->run) : COUNT_MAX;
        snprintf(command, sizeof command, "XREAD COUNT %d BLOCK 0 STREAMS %s %s", most, s->run->topic, s->id);
        if (redisAppendCommand(s->in, command) || redisGetReply(s->in, &reply)) fail_of(s->in);
    }
    return NULL;
}

static void consume(State *s) {
    s->in = open_reader(s);
    run_begin(s->run);
    receive(s);
    run_end(s->run);
}

static void send_one(void *state, const char *payload) { append(state, payload); }

static void flush(void *state) {
    State *s = state;
    struct pollfd out = {.fd = s->out->fd, .events = POLLIN};
    write_all(s->out);
    if (poll(&out, 1, 0) == 1 && redisBufferRead(s->out)) fail_of(s->out);
    take_read(s);
}

static void latency(State *s) {
    open_producer(s);
    s->in = open_reader(s);
    latency_run(s->run, s, send_one, flush, receive);
}

int main(int argc, char **argv) {
    static Run run;
    State state = {.run = &run};
    run_open(&run, "redis-c", argc, argv);
    run_take_acks(&run, ACK_ONE, 1u << ACK_NONE | 1u << ACK_ONE | 1u << ACK_DISK);
    if (run.mode == MODE_PRODUCE) {
        open_producer(&state);
        produce_in_window(&run, &state, send_batch, run.ack == ACK_NONE ? NULL : take_replies);
    } else if (run.mode == MODE_CONSUME) {
        consume(&state);
    } else {
        latency(&state);
    }
    char client[64];
    snprintf(client, sizeof client, "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    run_report(&run, client);
}
