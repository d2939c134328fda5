/* Load driver classic-c: Kafka 0.7's protocol over a bare socket, as in the paper. Nothing is acknowledged.
 *
 * A batch is the messages of one PRODUCE request, which is one send(). Each message is copied and its CRC-32 computed,
 * as a producer must do. The consumer fetches 1 MB of partition 0 at a time, and checks every CRC. A fetch of 0.7
 * cannot wait, so at the end of the log the consumer fetches again after 100 us.
 *
 *   PRODUCE  int32 size | int16 0 | topic | int32 partition | int32 set size | set
 *   FETCH    int32 size | int16 1 | topic | int32 partition | int64 offset | int32 size max
 *   message  int32 size | int8 magic 1 | int8 attributes | uint32 CRC-32 of the payload | payload
 */
#include <endian.h>

#include "../../../ext/c/crc32.h"
#include "raw_socket.h"

enum { PRODUCE = 0, FETCH = 1, ENTRY_HEADER_SIZE = 10, FETCH_SIZE = 1 << 20, ANSWER_HEADER_SIZE = 6, PAUSE_US = 100 };

typedef struct {
    Run *run;
    int out;
    Input in;
    char *frame;
    size_t frame_header_size, entry_size;
    int64_t offset;
} State;

static char *put16(char *p, int v) { uint16_t b = htobe16((uint16_t)v); memcpy(p, &b, 2); return p + 2; }
static char *put32(char *p, uint32_t v) { uint32_t b = htobe32(v); memcpy(p, &b, 4); return p + 4; }
static char *put64(char *p, int64_t v) { uint64_t b = htobe64((uint64_t)v); memcpy(p, &b, 8); return p + 8; }
static uint32_t load32(const char *p) { uint32_t v; memcpy(&v, p, 4); return be32toh(v); }

static char *put_request(char *p, int type, const char *topic) {
    size_t size = strlen(topic);
    p = put16(put16(p + 4, type), (int)size);
    memcpy(p, topic, size);
    return put32(p + size, 0); /* partition */
}

static void open_producer(State *s) {
    s->out = socket_open(s->run);
    s->entry_size = ENTRY_HEADER_SIZE + (size_t)s->run->size;
    s->frame = malloc(64 + strlen(s->run->topic) + s->entry_size * (size_t)s->run->batch);
    if (!s->frame) fail("no memory for a request");
    s->frame_header_size = (size_t)(put_request(s->frame, PRODUCE, s->run->topic) - s->frame) + 4;
}

static void put_entry(const State *s, char *p, const char *payload) {
    char *crc = put32(p, (uint32_t)(s->entry_size - 4));
    *crc++ = 1;
    *crc++ = 0;
    memcpy(crc + 4, payload, (size_t)s->run->size);
    put32(crc, kl_crc32(0, (unsigned char *)crc + 4, (size_t)s->run->size));
}

/* One request of so many messages with this payload. */
static void send_batch(void *state, const char *payload, int64_t count) {
    State *s = state;
    size_t set_size = s->entry_size * (size_t)count;
    put32(s->frame, (uint32_t)(s->frame_header_size - 4 + set_size));
    put32(s->frame + s->frame_header_size - 4, (uint32_t)set_size);
    for (int64_t i = 0; i < count; i++)
        put_entry(s, s->frame + s->frame_header_size + s->entry_size * (size_t)i, payload);
    socket_send(s->out, s->frame, s->frame_header_size + set_size);
}

static void open_consumer(State *s) { s->in = input_open(socket_open(s->run), FETCH_SIZE + (64 << 10)); }

/* The set at the offset: its bytes, whose last message may be cut, stay until the next call. */
static const char *fetch(State *s, size_t *size) {
    char frame[1024], *end = put_request(frame, FETCH, s->run->topic);
    end = put32(put64(end, s->offset), FETCH_SIZE);
    put32(frame, (uint32_t)(end - frame - 4));
    socket_send(s->in.fd, frame, (size_t)(end - frame));
    const char *answer = input_need(&s->in, ANSWER_HEADER_SIZE);
    size_t whole = 4 + (size_t)load32(answer);
    int error = answer[4] << 8 | (unsigned char)answer[5];
    if (error) fail("a fetch at offset %lld was answered with error %d", (long long)s->offset, error);
    answer = input_need(&s->in, whole);
    input_take(&s->in, whole);
    *size = whole - ANSWER_HEADER_SIZE;
    return answer + ANSWER_HEADER_SIZE;
}

/* Takes the whole messages of one fetch, as many as are left; how many there were. */
static int64_t take_fetched(State *s) {
    size_t size, at = 0;
    int64_t count = 0;
    const char *set = fetch(s, &size);
    for (; run_left(s->run) && size - at >= ENTRY_HEADER_SIZE && size - at >= 4 + (size_t)load32(set + at); count++) {
        const char *entry = set + at;
        size_t payload_size = 4 + (size_t)load32(entry) - ENTRY_HEADER_SIZE;
        if (entry[4] != 1 || entry[5] || load32(entry) < ENTRY_HEADER_SIZE - 4)
            fail("no plain message of magic 1 at offset %lld", (long long)(s->offset + (int64_t)at));
        if (kl_crc32(0, (const unsigned char *)entry + ENTRY_HEADER_SIZE, payload_size) != load32(entry + 6))
            fail("the message at offset %lld has another CRC than it says", (long long)(s->offset + (int64_t)at));
        run_take(s->run, entry + ENTRY_HEADER_SIZE, payload_size);
        at += ENTRY_HEADER_SIZE + payload_size;
    }
    if (!count && size >= FETCH_SIZE) fail("a message is larger than a fetch of %d bytes", FETCH_SIZE);
    s->offset += (int64_t)at;
    return count;
}

static void *receive(void *state) {
    State *s = state;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    while (run_left(s->run))
        if (!take_fetched(s)) usleep(PAUSE_US);
    return NULL;
}

static void consume(State *s) {
    open_consumer(s);
    run_begin(s->run);
    receive(s);
    run_end(s->run);
}

static void send_one(void *state, const char *payload) { send_batch(state, payload, 1); }

static void latency(State *s) {
    open_producer(s);
    open_consumer(s);
    latency_run(s->run, s, send_one, NULL, receive);
}

int main(int argc, char **argv) {
    static Run run;
    State state = {.run = &run};
    kl_crc32_select();
    run_open(&run, "classic-c", argc, argv);
    run_take_acks(&run, ACK_NONE, 1u << ACK_NONE);
    if (run.mode == MODE_PRODUCE) {
        open_producer(&state);
        produce_in_window(&run, &state, send_batch, NULL);
    } else if (run.mode == MODE_CONSUME) consume(&state);
    else latency(&state);
    run_report(&run, "0.7 over a bare socket");
}
