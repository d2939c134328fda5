/* Send Produce or Fetch requests over bare sockets, to measure what librdkafka would hide: small and large requests.
 *
 *   raw_bench produce --port P --topic T --count REQUESTS [--size S] [--records R] [--in-flight K] [--acks A]
 *                     [--connections C] [--partitions N] [--user U --password W]
 *   raw_bench fetch   --port P --topic T --count BYTES [--max-bytes M] [--user U --password W]
 *
 * produce sends Produce v7. Each request is one batch of R records of S bytes, and K requests are outstanding on each
 * of C connections (connection i writes to partition i % N). One thread drives all. Latency is measured from the send()
 * of a request to the recv() that completes its response. It prints the rate, p50, p99, p99.9 and the maximum.
 *
 * fetch sends Fetch v11 for partition 0 from offset 0, one request in flight, until BYTES of records have come. It
 * reads batch headers to find the next offset. With --user, each connection first authenticates by SASL PLAIN.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../null_broker/crc32c_sse42.h"

enum { IN_FLIGHT_MAX = 1024, CONNECTION_COUNT_MAX = 256, ANSWER_SIZE_MAX = 64 << 10, WARM_UP_COUNT = 1000 };

typedef struct {
    const char *topic, *user, *password;
    int port, size, record_count, in_flight, acks, connection_count, partition_count, max_bytes;
    int64_t count;
} Options;

typedef struct {
    int fd;
    unsigned char *request;
    size_t request_size;
    int64_t sent, received;
    uint64_t sent_ns[IN_FLIGHT_MAX];
    unsigned char answer[ANSWER_SIZE_MAX];
    size_t answer_size;
} Connection;

static uint64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "raw_bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static unsigned char *put16(unsigned char *p, int v) {
    uint16_t b = htobe16((uint16_t)v);
    memcpy(p, &b, 2);
    return p + 2;
}

static unsigned char *put32(unsigned char *p, int64_t v) {
    uint32_t b = htobe32((uint32_t)v);
    memcpy(p, &b, 4);
    return p + 4;
}

static unsigned char *put64(unsigned char *p, int64_t v) {
    uint64_t b = htobe64((uint64_t)v);
    memcpy(p, &b, 8);
    return p + 8;
}

static int32_t load32(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)be32toh(v); }
static int64_t load64(const unsigned char *p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)be64toh(v); }

static unsigned char *put_varint(unsigned char *p, int32_t value) {
    uint32_t v = ((uint32_t)value << 1) ^ (uint32_t)(value >> 31);
    for (; v >= 128; v >>= 7) *p++ = (unsigned char)(v | 128);
    *p++ = (unsigned char)v;
    return p;
}

static unsigned char *put_string(unsigned char *p, const char *text) {
    size_t size = strlen(text);
    p = put16(p, (int)size);
    memcpy(p, text, size);
    return p + size;
}

static unsigned char *put_record(unsigned char *p, int delta, int size) {
    unsigned char body[32], *b = body;
    *b++ = 0;
    b = put_varint(b, 0);
    b = put_varint(b, delta);
    b = put_varint(b, -1);
    b = put_varint(b, size);
    size_t head = (size_t)(b - body);
    p = put_varint(p, (int32_t)head + size + 1);
    memcpy(p, body, head);
    p += head;
    for (int i = 0; i < size; i++) *p++ = (unsigned char)('a' + i % 26);
    return put_varint(p, 0);
}

static unsigned char *put_batch(unsigned char *batch, const Options *o) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t now_ms = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    unsigned char *p = put64(batch, 0) + 4;
    p = put32(p, -1);
    *p++ = 2;
    p += 4;
    p = put16(p, 0);
    p = put32(p, o->record_count - 1);
    p = put64(put64(p, now_ms), now_ms);
    p = put32(put16(put64(p, -1), -1), -1);
    p = put32(p, o->record_count);
    for (int i = 0; i < o->record_count; i++) p = put_record(p, i, o->size);
    put32(batch + 8, p - batch - 12);
    put32(batch + 17, crc32c(batch + 21, (size_t)(p - batch - 21)));
    return p;
}

static unsigned char *put_header(unsigned char *p, int key, int version) {
    return put_string(put32(put16(put16(p + 4, key), version), 0), "raw");
}

static void build_produce(Connection *c, const Options *o, int32_t partition) {
    c->request = calloc(1, (size_t)o->record_count * ((size_t)o->size + 32) + 1024);
    if (!c->request) die("calloc");
    unsigned char *p = put_header(c->request, 0, 7);
    p = put16(p, -1);
    p = put16(p, o->acks);
    p = put32(p, 30000);
    p = put_string(put32(p, 1), o->topic);
    p = put32(put32(p, 1), partition);
    unsigned char *records = p + 4, *end = put_batch(records, o);
    put32(p, end - records);
    c->request_size = (size_t)(end - c->request);
    put32(c->request, (int64_t)c->request_size - 4);
}

static void send_all(int fd, const unsigned char *p, size_t size) {
    while (size) {
        ssize_t n = send(fd, p, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("send");
        p += n;
        size -= (size_t)n;
    }
}

static void receive_all(int fd, unsigned char *p, size_t size) {
    while (size) {
        ssize_t n = recv(fd, p, size, MSG_WAITALL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("recv");
        p += n;
        size -= (size_t)n;
    }
}

/* Reads an answer whose error code comes first; true when that is 0. */
static bool is_taken(int fd) {
    unsigned char head[4], answer[4096];
    receive_all(fd, head, 4);
    if (load32(head) > (int32_t)sizeof answer) return false;
    receive_all(fd, answer, (size_t)load32(head));
    return !answer[4] && !answer[5];
}

/* SaslHandshake 1 and SaslAuthenticate 0 by PLAIN. */
static void sign_in(int fd, const Options *o) {
    unsigned char frame[1024], *p = put_string(put_header(frame, 17, 1), "PLAIN");
    size_t user = strlen(o->user), password = strlen(o->password);
    put32(frame, p - frame - 4);
    send_all(fd, frame, (size_t)(p - frame));
    bool taken = is_taken(fd);
    p = put32(put_header(frame, 36, 0), (int64_t)(user + password + 2));
    *p++ = 0;
    memcpy(p, o->user, user + 1);
    p += user + 1;
    memcpy(p, o->password, password);
    p += password;
    put32(frame, p - frame - 4);
    send_all(fd, frame, (size_t)(p - frame));
    if (!taken || !is_taken(fd)) {
        fprintf(stderr, "raw_bench: signing in was refused\n");
        exit(1);
    }
}

static int open_socket(const Options *o) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)o->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (o->user) sign_in(fd, o);
    return fd;
}

static void send_request(Connection *c) {
    put32(c->request + 8, c->sent);
    c->sent_ns[c->sent % IN_FLIGHT_MAX] = now_ns(CLOCK_MONOTONIC);
    send_all(c->fd, c->request, c->request_size);
    c->sent++;
}

/* correlation id in order; error 0 at the only partition: size, correlation, topics, name, partitions, index, error */
static void check_answer(const Connection *c, const unsigned char *answer, const Options *o) {
    size_t at = 4 + 4 + 4 + 2 + strlen(o->topic) + 4 + 4;
    if (load32(answer + 4) != (int32_t)c->received || answer[at] || answer[at + 1]) {
        fprintf(stderr, "raw_bench: request %lld: correlation %d, error %d\n", (long long)c->received,
                load32(answer + 4), answer[at] << 8 | answer[at + 1]);
        exit(1);
    }
}

/* Takes what the socket has; each whole answer is timed. Returns how many came. */
static int receive_answers(Connection *c, const Options *o, uint32_t *times, int64_t *time_count) {
    ssize_t n = recv(c->fd, c->answer + c->answer_size, ANSWER_SIZE_MAX - c->answer_size, 0);
    if (n <= 0) die("recv");
    uint64_t now = now_ns(CLOCK_MONOTONIC);
    c->answer_size += (size_t)n;
    size_t at = 0;
    int count = 0;
    while (c->answer_size - at >= 4 && c->answer_size - at >= 4 + (size_t)load32(c->answer + at)) {
        check_answer(c, c->answer + at, o);
        uint64_t taken = now - c->sent_ns[c->received % IN_FLIGHT_MAX];
        times[(*time_count)++] = taken > UINT32_MAX ? UINT32_MAX : (uint32_t)taken;
        at += 4 + (size_t)load32(c->answer + at);
        c->received++;
        count++;
    }
    memmove(c->answer, c->answer + at, c->answer_size - at);
    c->answer_size -= at;
    return count;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void run_requests(Connection *connections, const Options *o, int64_t count, uint32_t *times) {
    struct pollfd polls[CONNECTION_COUNT_MAX];
    int64_t per_connection = count / o->connection_count, done = 0, total = per_connection * o->connection_count;
    for (int i = 0; i < o->connection_count; i++) {
        connections[i].sent = connections[i].received = 0;
        polls[i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
        for (int j = 0; j < o->in_flight && j < per_connection; j++) send_request(&connections[i]);
    }
    while (done < total) {
        if (o->connection_count > 1 && poll(polls, (nfds_t)o->connection_count, -1) < 0) die("poll");
        for (int i = 0; i < o->connection_count; i++) {
            Connection *c = &connections[i];
            if (c->received == per_connection || (o->connection_count > 1 && !polls[i].revents)) continue;
            for (int n = receive_answers(c, o, times, &done); n > 0; n--)
                if (c->sent < per_connection) send_request(c);
        }
    }
}

static void create_topic(const Options *o) {
    unsigned char frame[1024], *p = put_header(frame, 3, 4);
    p = put_string(put32(p, 1), o->topic);
    *p++ = 1;
    put32(frame, p - frame - 4);
    int fd = open_socket(o);
    send_all(fd, frame, (size_t)(p - frame));
    unsigned char size[4];
    receive_all(fd, size, 4);
    unsigned char *answer = malloc((size_t)load32(size));
    receive_all(fd, answer, (size_t)load32(size));
    free(answer);
    close(fd);
}

static void produce(const Options *o) {
    Connection *connections = calloc((size_t)o->connection_count, sizeof *connections);
    uint32_t *times = malloc(sizeof *times * (size_t)(o->count > WARM_UP_COUNT ? o->count : WARM_UP_COUNT));
    for (int i = 0; i < o->connection_count; i++) {
        connections[i].fd = open_socket(o);
        build_produce(&connections[i], o, i % o->partition_count);
    }
    int64_t warm_up = o->record_count == 1 ? WARM_UP_COUNT : o->connection_count;
    run_requests(connections, o, warm_up, times);
    uint64_t wall = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    run_requests(connections, o, o->count, times);
    double wall_s = (double)(now_ns(CLOCK_MONOTONIC) - wall) * 1e-9;
    double cpu_s = (double)(now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e-9;
    int64_t n = o->count / o->connection_count * o->connection_count;
    qsort(times, (size_t)n, sizeof *times, compare);
    printf("{\"what\": \"raw_produce\", \"count\": %lld, \"wall_s\": %.6f, \"rate_per_s\": %.1f, \"mb_per_s\": %.2f, "
           "\"client_cpu_s\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, \"max_us\": %.2f}\n",
           (long long)n, wall_s, (double)n / wall_s, (double)n * (double)connections[0].request_size / wall_s / 1e6,
           cpu_s, times[n / 2] / 1e3, times[n * 99 / 100] / 1e3, times[n * 999 / 1000] / 1e3, times[n - 1] / 1e3);
}

/* Offset after the last whole batch in the records; adds their bytes. */
static int64_t walk_batches(const unsigned char *p, int64_t size, int64_t offset, int64_t *bytes) {
    while (size >= 61) {
        int64_t batch = 12 + (int64_t)load32(p + 8);
        if (batch < 61 || batch > size) break;
        offset = load64(p) + load32(p + 23) + 1;
        *bytes += batch;
        p += batch;
        size -= batch;
    }
    return offset;
}

static size_t build_fetch(unsigned char *frame, const Options *o, int64_t offset) {
    unsigned char *p = put_header(frame, 1, 11);
    p = put32(put32(put32(put32(p, -1), 1000), 1), o->max_bytes);
    *p++ = 0;
    p = put32(put32(p, 0), -1);
    p = put_string(put32(p, 1), o->topic);
    p = put32(put32(put32(p, 1), 0), -1);
    p = put32(put64(put64(p, offset), -1), o->max_bytes);
    p = put16(put32(p, 0), 0);
    put32(frame, p - frame - 4);
    return (size_t)(p - frame);
}

static void fetch(const Options *o) {
    int fd = open_socket(o);
    size_t capacity = (size_t)o->max_bytes + (2u << 20);
    unsigned char frame[1024], *answer = malloc(capacity);
    int64_t offset = 0, bytes = 0, requests = 0;
    uint64_t wall = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (; bytes < o->count; requests++) {
        send_all(fd, frame, build_fetch(frame, o, offset));
        unsigned char head[4];
        receive_all(fd, head, 4);
        if ((size_t)load32(head) > capacity) die("answer too large");
        receive_all(fd, answer, (size_t)load32(head));
        /* correlation, throttle, error, session, topics, name, partitions;
         * index, error, high watermark, last stable offset, log start, aborted, preferred replica */
        size_t at = 4 + 4 + 2 + 4 + 4 + 2 + strlen(o->topic) + 4;
        int64_t size = load32(answer + at + 38);
        int64_t before = offset;
        offset = walk_batches(answer + at + 42, size, offset, &bytes);
        if (offset == before) {
            fprintf(stderr, "raw_bench: nothing at offset %lld, error %d\n", (long long)offset, answer[at + 5]);
            exit(1);
        }
    }
    double wall_s = (double)(now_ns(CLOCK_MONOTONIC) - wall) * 1e-9;
    printf("{\"what\": \"raw_fetch\", \"count\": %lld, \"wall_s\": %.6f, \"rate_per_s\": %.1f, \"mb_per_s\": %.2f, "
           "\"client_cpu_s\": %.6f, \"bytes\": %lld, \"end_offset\": %lld}\n",
           (long long)requests, wall_s, (double)requests / wall_s, (double)bytes / wall_s / 1e6,
           (double)(now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e-9, (long long)bytes, (long long)offset);
}

int main(int argc, char **argv) {
    Options o = {.size = 200, .record_count = 1, .in_flight = 1, .acks = 1, .connection_count = 1, .partition_count = 1,
                 .max_bytes = 1 << 20};
    static const struct option options[] = {
        {"port", required_argument, 0, 'p'},        {"topic", required_argument, 0, 't'},
        {"count", required_argument, 0, 'n'},       {"size", required_argument, 0, 's'},
        {"records", required_argument, 0, 'r'},     {"in-flight", required_argument, 0, 'i'},
        {"acks", required_argument, 0, 'a'},        {"connections", required_argument, 0, 'c'},
        {"partitions", required_argument, 0, 'k'},  {"max-bytes", required_argument, 0, 'm'},
        {"user", required_argument, 0, 'u'},        {"password", required_argument, 0, 'w'},  {0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'p') o.port = atoi(optarg);
        else if (option == 't') o.topic = optarg;
        else if (option == 'n') o.count = atoll(optarg);
        else if (option == 's') o.size = atoi(optarg);
        else if (option == 'r') o.record_count = atoi(optarg);
        else if (option == 'i') o.in_flight = atoi(optarg);
        else if (option == 'a') o.acks = atoi(optarg);
        else if (option == 'c') o.connection_count = atoi(optarg);
        else if (option == 'k') o.partition_count = atoi(optarg);
        else if (option == 'm') o.max_bytes = atoi(optarg);
        else if (option == 'u') o.user = optarg;
        else if (option == 'w') o.password = optarg;
        else return 2;
    }
    if (!o.user != !o.password || (o.user && strlen(o.user) + strlen(o.password) > 512)) return 2;
    if (optind >= argc || !o.topic || !o.port || o.count <= 0 || o.in_flight < 1 || o.in_flight > IN_FLIGHT_MAX ||
        o.connection_count < 1 || o.connection_count > CONNECTION_COUNT_MAX) {
        fprintf(stderr, "usage: raw_bench produce|fetch --port P --topic T --count N [options]\n");
        return 2;
    }
    crc32c_prepare();
    create_topic(&o);
    if (!strcmp(argv[optind], "produce")) produce(&o);
    else if (!strcmp(argv[optind], "fetch")) fetch(&o);
    else return 2;
    return 0;
}
