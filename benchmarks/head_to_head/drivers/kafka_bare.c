/* Load driver kafka-bare: Kafka's current protocol over a bare socket, for partition 0.
 *
 * It does only what a client must do: one thread, and no queues between threads, like nats-c and classic-c. Each
 * message is copied into its batch, whose CRC-32C is computed. Every response is parsed and checked for errors.
 * Consuming fetches 1 MB at a time, the clients' default, and requests the next before it processes what came. Every
 * batch's CRC is checked, and every record parsed. ack: none is acks=0, one is acks=1, disk is acks=all.
 *
 *   request   int32 size | int16 key | int16 version | int32 correlation | client id | body
 *   Produce 7 transactional id | int16 acks | int32 timeout | 1 topic | 1 partition | int32 size | batch
 *   Fetch 11  replica, wait, min, max | isolation | session | 1 topic | 1 partition: epoch, offset, start, max | - | rack
 *   batch     int64 offset | int32 size | int32 epoch | int8 2 | uint32 CRC-32C of the rest | int16 attributes |
 *             int32 last offset delta | 2 x int64 time | int64, int16, int32 producer | int32 count | records
 */
#include <endian.h>
#include <poll.h>

#include "../../../ext/c/crc32c.h"
#include "raw_socket.h"

enum { PRODUCE = 0, PRODUCE_VERSION = 7, FETCH = 1, FETCH_VERSION = 11, METADATA = 3, METADATA_VERSION = 4 };
enum { NAME_SIZE_MAX = 249, REQUEST_HEAD_SIZE_MAX = 512, ANSWER_SIZE_MAX = 64 << 10 };
enum { FETCH_SIZE = 1 << 20, BATCH_SIZE_MAX = 8 << 20, FETCH_WAIT_MS = 500, LATENCY_BATCH = 1000, TIMEOUT_MS = 30000 };
enum { BATCH_HEADER_SIZE = 61, LENGTH_OVERHEAD = 12, MAGIC_AT = 16, CRC_AT = 17, CRC_FROM = 21, LAST_DELTA_AT = 23,
       COUNT_AT = 57, RECORD_OVERHEAD_MAX = 24 };

typedef struct {
    Run *run;
    int out, in; /* sockets */
    Input acks, records;
    char *request; /* head, batch header, records */
    size_t head_size, record_end;
    int record_count;
    uint32_t sent_requests, answered_requests;
    int64_t offset; /* to be fetched next */
} State;

/* What is left of an answer; reading past its end ends the program. */
typedef struct {
    const char *at, *end;
} Reader;

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

static char *put16(char *p, int v) { uint16_t b = htobe16((uint16_t)v); memcpy(p, &b, 2); return p + 2; }
static char *put32(char *p, int64_t v) { uint32_t b = htobe32((uint32_t)v); memcpy(p, &b, 4); return p + 4; }
static char *put64(char *p, int64_t v) { uint64_t b = htobe64((uint64_t)v); memcpy(p, &b, 8); return p + 8; }
static int32_t load32(const char *p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)be32toh(v); }
static int64_t load64(const char *p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)be64toh(v); }

static char *put_text(char *p, const char *text) {
    size_t size = strlen(text);
    memcpy(put16(p, (int)size), text, size);
    return p + 2 + size;
}

static char *put_varint(char *p, int32_t value) {
    uint32_t v = ((uint32_t)value << 1) ^ (uint32_t)(value >> 31);
    for (; v >= 128; v >>= 7) *p++ = (char)(v | 128);
    *p++ = (char)v;
    return p;
}

static const char *take(Reader *r, int64_t size) {
    if (size < 0 || size > r->end - r->at) fail("the broker sent an answer that ends too early");
    r->at += size;
    return r->at - size;
}

static int take8(Reader *r) { return *take(r, 1); }
static int take16(Reader *r) { uint16_t v; memcpy(&v, take(r, 2), 2); return (int16_t)be16toh(v); }
static int32_t take32(Reader *r) { return load32(take(r, 4)); }
static int64_t take64(Reader *r) { return load64(take(r, 8)); }

static void skip_text(Reader *r) {
    int size = take16(r);
    if (size > 0) take(r, size);
}

static inline int32_t take_varint(Reader *r) {
    uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        unsigned char byte = (unsigned char)*take(r, 1);
        value |= (uint32_t)(byte & 127) << shift;
        if (byte < 128) return (int32_t)(value >> 1) ^ -(int32_t)(value & 1);
    }
    fail("the broker sent a record with a number that does not end");
}

/* ---- requests and answers ---------------------------------------------------------------------------------------- */

static char *put_head(char *p, int key, int version, uint32_t correlation) {
    return put_text(put32(put16(put16(p + 4, key), version), correlation), "bench");
}

static void send_request(int fd, char *request, const char *end) {
    put32(request, end - request - 4);
    socket_send(fd, request, (size_t)(end - request));
}

/* The next answer without its size and correlation id; its bytes stay until input_take of the returned size. */
static size_t next_answer(Input *input, uint32_t correlation, Reader *answer) {
    int32_t size = load32(input_need(input, 4));
    if (size < 4) fail("the broker sent an answer of %d bytes", size);
    const char *whole = input_need(input, 4 + (size_t)size);
    *answer = (Reader){whole + 4, whole + 4 + size};
    if ((uint32_t)take32(answer) != correlation) fail("the broker answered another request than the next");
    return 4 + (size_t)size;
}

/* Whether the answer to Metadata knows the topic and the leader of a partition. */
static bool knows_topic(Reader *r) {
    take32(r); /* throttle */
    for (int32_t brokers = take32(r); brokers > 0; brokers--) {
        take32(r);
        skip_text(r);
        take32(r);
        skip_text(r);
    }
    skip_text(r); /* cluster id */
    take32(r);    /* controller */
    if (take32(r) != 1) return false;
    int error = take16(r);
    skip_text(r);
    take8(r); /* internal? */
    if (error || take32(r) < 1) return false;
    error = take16(r);
    take32(r);
    return !error && take32(r) >= 0;
}

/* Back once the broker knows the topic, which it makes where it is asked for; what was sent before is done by then. */
static void open_topic(const Run *run, int fd) {
    char request[REQUEST_HEAD_SIZE_MAX];
    Input input = input_open(fd, ANSWER_SIZE_MAX);
    for (bool known = false; !known;) { /* the watchdog ends it */
        char *p = put_text(put32(put_head(request, METADATA, METADATA_VERSION, 0), 1), run->topic);
        *p++ = 1; /* may be made */
        send_request(fd, request, p);
        Reader answer;
        size_t size = next_answer(&input, 0, &answer);
        known = knows_topic(&answer);
        input_take(&input, size);
        if (!known) usleep(10000);
    }
    free(input.data);
}

/* ---- producing --------------------------------------------------------------------------------------------------- */

static void open_producer(State *s, int batch) {
    static const int acks[] = {0, 1, -1};
    s->out = socket_open(s->run);
    open_topic(s->run, s->out);
    s->acks = input_open(s->out, ANSWER_SIZE_MAX);
    s->request = malloc(REQUEST_HEAD_SIZE_MAX + ((size_t)s->run->size + RECORD_OVERHEAD_MAX) * (size_t)batch);
    if (!s->request) fail("no memory for a batch");
    char *p = put16(put_head(s->request, PRODUCE, PRODUCE_VERSION, 0), -1);
    p = put32(put16(p, acks[s->run->ack]), TIMEOUT_MS);
    p = put32(put32(put_text(put32(p, 1), s->run->topic), 1), 0);
    s->head_size = (size_t)(p - s->request) + 4;
    s->record_end = s->head_size + BATCH_HEADER_SIZE;
}

static size_t varint_size(int32_t value) {
    char bytes[5];
    return (size_t)(put_varint(bytes, value) - bytes);
}

/* One more record without key and headers behind those that wait. */
static void append(State *s, const char *payload) {
    int size = s->run->size;
    size_t body = 4 + varint_size(s->record_count) + varint_size(size) + (size_t)size;
    char *p = put_varint(s->request + s->record_end, (int32_t)body);
    *p++ = 0;
    *p++ = 0;
    p = put_varint(put_varint(put_varint(p, s->record_count), -1), size);
    memcpy(p, payload, (size_t)size);
    p[size] = 0;
    s->record_end = (size_t)(p + size + 1 - s->request);
    s->record_count++;
}

/* The waiting records as one request. */
static void send_records(State *s) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t now_ms = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    char *batch = s->request + s->head_size, *end = s->request + s->record_end;
    put32(batch - 4, end - batch);
    char *p = put32(put32(put64(batch, 0), end - batch - LENGTH_OVERHEAD), -1);
    *p = 2;
    p = put32(put16(batch + CRC_FROM, 0), s->record_count - 1);
    p = put64(put64(p, now_ms), now_ms);
    put32(put32(put16(put64(p, -1), -1), -1), s->record_count);
    put32(batch + CRC_AT, kl_crc32c(0, (unsigned char *)batch + CRC_FROM, (size_t)(end - batch - CRC_FROM)));
    put32(s->request + 8, s->sent_requests++);
    send_request(s->out, s->request, end);
    s->record_end = s->head_size + BATCH_HEADER_SIZE;
    s->record_count = 0;
}

static void send_batch(void *state, const char *payload, int64_t count) {
    for (int64_t i = 0; i < count; i++) append(state, payload);
    send_records(state);
}

/* Takes one answer to Produce, waiting for it. */
static void take_ack(State *s) {
    Reader r;
    size_t size = next_answer(&s->acks, s->answered_requests++, &r);
    if (take32(&r) != 1) fail("the broker answered for another number of topics than one");
    skip_text(&r);
    if (take32(&r) != 1) fail("the broker answered for another number of partitions than one");
    take32(&r);
    int error = take16(&r);
    if (error) fail("the broker took no batch: error %d", error);
    if (take64(&r) < 0) fail("the broker gave a batch no offset");
    input_take(&s->acks, size);
}

/* Whether a whole answer is here. */
static bool has_answer(const Input *input) {
    return input_size(input) >= 4 && input_size(input) >= 4 + (size_t)load32(input->data + input->begin);
}

/* Waits for an acknowledgement and takes all that came with it; how many messages they are. */
static int64_t take_acks(void *state) {
    State *s = state;
    int64_t before = (int64_t)s->answered_requests * s->run->batch;
    do take_ack(s); while (has_answer(&s->acks));
    int64_t after = (int64_t)s->answered_requests * s->run->batch;
    return (after < s->run->messages ? after : s->run->messages) - before; /* the last batch may be a small one */
}

static void produce(State *s) {
    open_producer(s, s->run->batch);
    produce_in_window(s->run, s, send_batch, s->run->ack == ACK_NONE ? NULL : take_acks);
    open_topic(s->run, s->out); /* an answer from behind what acks=0 sent: all came over */
}

/* ---- consuming --------------------------------------------------------------------------------------------------- */

static void open_consumer(State *s) {
    s->in = socket_open(s->run);
    open_topic(s->run, s->in);
    s->records = input_open(s->in, FETCH_SIZE + BATCH_SIZE_MAX);
}

static void ask(State *s) {
    char request[REQUEST_HEAD_SIZE_MAX];
    char *p = put_head(request, FETCH, FETCH_VERSION, 0);
    p = put32(put32(put32(put32(p, -1), FETCH_WAIT_MS), 1), FETCH_SIZE);
    *p++ = 0;                                                      /* read uncommitted */
    p = put32(put32(p, 0), -1);                                    /* no session */
    p = put32(put32(put_text(put32(p, 1), s->run->topic), 1), 0);  /* partition 0 */
    p = put64(put64(put32(p, -1), s->offset), -1);
    p = put16(put32(put32(p, FETCH_SIZE), 0), 0);
    send_request(s->in, request, p);
}

/* The records field of the only partition. */
static Reader records_of(Reader *r) {
    take32(r); /* throttle */
    int error = take16(r);
    take32(r); /* session */
    if (take32(r) != 1) fail("the broker answered for another number of topics than one: error %d", error);
    skip_text(r);
    if (take32(r) != 1) fail("the broker answered for another number of partitions than one");
    take32(r);
    error = take16(r);
    if (error) fail("a fetch was answered with error %d", error);
    take(r, 24); /* high watermark, last stable offset, log start */
    if (take32(r) > 0) fail("the broker told of transactions that nobody asked for");
    take32(r); /* preferred replica */
    int32_t size = take32(r);
    const char *records = take(r, size > 0 ? size : 0);
    return (Reader){records, r->at};
}

/* The next whole batch; false at the end, or where the last one is cut off. */
static bool next_batch(Reader *r, Reader *batch) {
    int64_t left = r->end - r->at;
    if (left < LENGTH_OVERHEAD) return false;
    int64_t size = LENGTH_OVERHEAD + (int64_t)load32(r->at + 8);
    if (size > left) return false;
    if (size < BATCH_HEADER_SIZE || r->at[MAGIC_AT] != 2) fail("the broker sent a batch of an unknown form");
    batch->at = take(r, size);
    batch->end = r->at;
    return true;
}

static void take_batch(Run *run, const Reader *batch) {
    const unsigned char *from = (const unsigned char *)batch->at + CRC_FROM;
    if (kl_crc32c(0, from, (size_t)((const unsigned char *)batch->end - from)) != (uint32_t)load32(batch->at + CRC_AT))
        fail("a batch came with a wrong CRC");
    if (batch->at[CRC_FROM + 1] & 7) fail("a batch is compressed");
    Reader r = {batch->at + BATCH_HEADER_SIZE, batch->end};
    for (int32_t count = load32(batch->at + COUNT_AT); count > 0; count--) {
        Reader record = {NULL, NULL};
        int32_t size = take_varint(&r);
        record.at = take(&r, size);
        record.end = r.at;
        take(&record, 1); /* attributes */
        take_varint(&record);
        take_varint(&record);
        int32_t key_size = take_varint(&record);
        if (key_size > 0) take(&record, key_size);
        int32_t value_size = take_varint(&record);
        if (value_size < 0) fail("a message has no value");
        if (run_left(run)) run_take(run, take(&record, value_size), (size_t)value_size);
    }
}

static void *receive(void *state) {
    State *s = state;
    ask(s);
    while (run_left(s->run)) {
        Reader answer, batch;
        size_t size = next_answer(&s->records, 0, &answer);
        Reader records = records_of(&answer), ahead = records;
        while (next_batch(&ahead, &batch)) s->offset = load64(batch.at) + load32(batch.at + LAST_DELTA_AT) + 1;
        ask(s); /* the next is on its way while these are handed out */
        while (next_batch(&records, &batch)) take_batch(s->run, &batch);
        input_take(&s->records, size);
    }
    return NULL;
}

static void consume(State *s) {
    open_consumer(s);
    run_begin(s->run);
    receive(s);
    run_end(s->run);
}

/* ---- latency ----------------------------------------------------------------------------------------------------- */

static void send_one(void *state, const char *payload) {
    State *s = state;
    append(s, payload);
    if (s->record_count == LATENCY_BATCH) send_records(s);
}

static void flush(void *state) {
    State *s = state;
    struct pollfd out = {.fd = s->out, .events = POLLIN};
    if (s->record_count) send_records(s);
    while (poll(&out, 1, 0) == 1) take_ack(s);
    while (has_answer(&s->acks)) take_ack(s);
}

static void latency(State *s) {
    if (s->run->ack == ACK_NONE) refuse("latency is measured with an acknowledgement");
    open_producer(s, LATENCY_BATCH);
    open_consumer(s);
    latency_run(s->run, s, send_one, flush, receive);
}

int main(int argc, char **argv) {
    static Run run;
    static State state = {.run = &run};
    run_open(&run, "kafka-bare", argc, argv);
    run_take_acks(&run, ACK_ONE, 1u << ACK_NONE | 1u << ACK_ONE | 1u << ACK_DISK);
    if (strlen(run.topic) > NAME_SIZE_MAX) refuse("a topic's name has at most %d bytes", NAME_SIZE_MAX);
    kl_crc32c_select();
    if (run.mode == MODE_PRODUCE) produce(&state);
    else if (run.mode == MODE_CONSUME) consume(&state);
    else latency(&state);
    run_report(&run, "Kafka's protocol over a bare socket");
}
