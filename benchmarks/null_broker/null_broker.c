/* A Kafka broker that does as little as possible: the yardstick with which kafkalite is compared.
 *
 * Each of its three modes adds one duty that a real broker cannot avoid:
 *   ack     Produce is parsed as far as the partition and acknowledged; nothing is stored.
 *   crc     the CRC-32C of each batch is also computed and compared.
 *   append  the base offset is patched, and pwrite() appends the batch to a file that fallocate() has extended.
 *           Fetch then serves whole batches of that file with sendfile(). acks=all waits for an fdatasync() of each
 *           batch: no group commit.
 *
 * --fault forget|double|flip|move|swap makes it cheat at every 50th batch while it acknowledges as usual. Tests prove
 * with this that their checks find a cheating broker.
 *
 * It omits everything else: recovery, flushing, retention, producer state, limits for hostile clients, and versions
 * that librdkafka does not need. It trusts its (loopback, friendly) client except for lengths.
 *
 * Thread rule: main accepts connections and distributes them in turn. Each of N workers owns an epoll set and its
 * connections. A partition's mutex is held over offset assignment, pwrite and index entry.
 *
 * Supported: Produce 3-7, Fetch 4-11, ListOffsets 1-2, Metadata 0-4, FindCoordinator 0, ApiVersions 0-3.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "crc32c_sse42.h"

enum {
    TOPIC_COUNT_MAX = 64,
    NAME_SIZE_MAX = 250,
    FRAME_SIZE_MAX = 100 << 20,
    INPUT_SIZE_MIN = 256 << 10,
    OUTPUT_ITEM_COUNT_MAX = 256,
    EVENT_COUNT_MAX = 128,
    ALLOCATE_STEP = 16 << 20,
    BATCH_HEADER_SIZE = 61,
};

enum { API_PRODUCE = 0, API_FETCH = 1, API_LIST_OFFSETS = 2, API_METADATA = 3, API_FIND_COORDINATOR = 10,
       API_VERSIONS = 18 };

static const int16_t SERVED[][3] = {{API_PRODUCE, 0, 7}, {API_FETCH, 4, 11},           {API_LIST_OFFSETS, 1, 2},
                                    {API_METADATA, 0, 4}, {API_FIND_COORDINATOR, 0, 0}, {API_VERSIONS, 0, 3}};
enum { SERVED_COUNT = sizeof SERVED / sizeof SERVED[0] };

typedef enum { MODE_ACK, MODE_CRC, MODE_APPEND } Mode;
typedef enum { FAULT_NONE, FAULT_FORGET, FAULT_DOUBLE, FAULT_FLIP, FAULT_MOVE, FAULT_SWAP } Fault;
static const char *const FAULT_NAMES[] = {"none", "forget", "double", "flip", "move", "swap"};
enum { FAULT_COUNT = sizeof FAULT_NAMES / sizeof FAULT_NAMES[0], FAULT_INTERVAL = 50 };

typedef struct { int64_t offset, position; } IndexEntry;

typedef struct {
    pthread_mutex_t lock;
    int fd;                     /* -1 until the first append */
    int64_t end_offset, size, allocated;
    IndexEntry *index;          /* one entry per batch */
    size_t index_count, index_capacity;
    int64_t batch_count;
    unsigned char *held;        /* a batch that waits for the next one to overtake it (FAULT_SWAP) */
    int32_t held_size;
} Partition;

typedef struct { char name[NAME_SIZE_MAX + 1]; int16_t name_size; Partition *partitions; } Topic;

typedef struct { bool is_file; size_t start, size; int fd; off_t position; } OutputItem;

typedef struct {
    int fd;
    unsigned char *input;
    size_t input_size, input_capacity;
    unsigned char *output;      /* bytes of all buffer items, one after the other */
    size_t output_size, output_capacity, mark;
    OutputItem items[OUTPUT_ITEM_COUNT_MAX];
    int item_count, item_next;
    int64_t parked_until_ms;    /* a fetch at the end of the log waits here; later requests wait behind it */
    size_t parked_frame_size;
    bool wants_write;
    int slot;
} Connection;

typedef struct { int epoll_fd; Connection **connections; int count, capacity; pthread_mutex_t lock; } Worker;

typedef struct { const unsigned char *pos, *end; bool failed; } Reader;

static Mode mode = MODE_ACK;
static Fault fault = FAULT_NONE;
static int partition_count = 8, thread_count = 1, port;
static const char *data_dir = "/tmp";
static Topic topics[TOPIC_COUNT_MAX];
static int topic_count;
static pthread_mutex_t topics_lock = PTHREAD_MUTEX_INITIALIZER;
static Worker *workers;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- bounded reading, growing writing -------------------------------------------------------------------------- */

static const unsigned char *take(Reader *r, int64_t n) {
    if (r->failed || n < 0 || n > r->end - r->pos) {
        r->failed = true;
        return NULL;
    }
    r->pos += n;
    return r->pos - n;
}

static int8_t get8(Reader *r) { const unsigned char *p = take(r, 1); return p ? (int8_t)*p : 0; }
static int16_t load16(const unsigned char *p) { uint16_t v; memcpy(&v, p, 2); return (int16_t)be16toh(v); }
static int32_t load32(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)be32toh(v); }
static int64_t load64(const unsigned char *p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)be64toh(v); }
static int16_t get16(Reader *r) { const unsigned char *p = take(r, 2); return p ? load16(p) : 0; }
static int32_t get32(Reader *r) { const unsigned char *p = take(r, 4); return p ? load32(p) : 0; }
static int64_t get64(Reader *r) { const unsigned char *p = take(r, 8); return p ? load64(p) : 0; }

static const unsigned char *get_string(Reader *r, int16_t *size) {
    *size = get16(r);
    return *size < 0 ? NULL : take(r, *size);
}

static unsigned char *reserve(Connection *c, size_t n) {
    if (c->output_size + n > c->output_capacity) {
        c->output_capacity = (c->output_size + n) * 2;
        c->output = realloc(c->output, c->output_capacity);
        if (!c->output) die("realloc");
    }
    c->output_size += n;
    return c->output + c->output_size - n;
}

static void put8(Connection *c, int8_t v) { *reserve(c, 1) = (unsigned char)v; }
static void put16(Connection *c, int16_t v) { uint16_t b = htobe16((uint16_t)v); memcpy(reserve(c, 2), &b, 2); }
static void put32(Connection *c, int32_t v) { uint32_t b = htobe32((uint32_t)v); memcpy(reserve(c, 4), &b, 4); }
static void put64(Connection *c, int64_t v) { uint64_t b = htobe64((uint64_t)v); memcpy(reserve(c, 8), &b, 8); }
static void put_bytes(Connection *c, const void *p, size_t n) { memcpy(reserve(c, n), p, n); }
static void put_string(Connection *c, const void *p, int16_t n) { put16(c, n); if (n > 0) put_bytes(c, p, (size_t)n); }

static void close_buffer_item(Connection *c) {
    if (c->output_size == c->mark) return;
    if (c->item_count == OUTPUT_ITEM_COUNT_MAX) die("too many output items");
    OutputItem *last = c->item_count ? &c->items[c->item_count - 1] : NULL;
    if (last && !last->is_file && last->start + last->size == c->mark)
        last->size += c->output_size - c->mark;
    else
        c->items[c->item_count++] = (OutputItem){.start = c->mark, .size = c->output_size - c->mark};
    c->mark = c->output_size;
}

static void put_file(Connection *c, int fd, int64_t position, int64_t size) {
    close_buffer_item(c);
    if (c->item_count == OUTPUT_ITEM_COUNT_MAX) die("too many output items");
    c->items[c->item_count++] = (OutputItem){.is_file = true, .size = (size_t)size, .fd = fd, .position = position};
}

/* ---- storage --------------------------------------------------------------------------------------------------- */

static Topic *find_topic(const unsigned char *name, int16_t size) {
    if (!name || size <= 0 || size > NAME_SIZE_MAX) return NULL;
    Topic *found = NULL;
    pthread_mutex_lock(&topics_lock);
    for (int i = 0; i < topic_count && !found; i++)
        if (topics[i].name_size == size && !memcmp(topics[i].name, name, (size_t)size)) found = &topics[i];
    if (!found && topic_count < TOPIC_COUNT_MAX) {
        Topic *topic = &topics[topic_count];
        topic->partitions = calloc((size_t)partition_count, sizeof(Partition));
        if (!topic->partitions) die("calloc");
        for (int i = 0; i < partition_count; i++) {
            topic->partitions[i].fd = -1;
            pthread_mutex_init(&topic->partitions[i].lock, NULL);
        }
        memcpy(topic->name, name, (size_t)size);
        topic->name_size = size;
        topic_count++;
        found = topic;
    }
    pthread_mutex_unlock(&topics_lock);
    return found;
}

static Partition *find_partition(Topic *topic, int32_t index) {
    return topic && index >= 0 && index < partition_count ? &topic->partitions[index] : NULL;
}

static void open_file(Partition *p, const Topic *topic, int32_t index) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%d.log", data_dir, topic->name, index);
    p->fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (p->fd < 0) die(path);
}

static void append_file(Partition *p, const Topic *topic, int32_t index, unsigned char *batch, int32_t size) {
    if (p->fd < 0) open_file(p, topic, index);
    if (p->size + size > p->allocated) {
        int64_t step = size > ALLOCATE_STEP ? size : ALLOCATE_STEP;
        if (fallocate(p->fd, FALLOC_FL_KEEP_SIZE, p->allocated, step) == 0) p->allocated += step;
    }
    uint64_t base = htobe64((uint64_t)p->end_offset);
    memcpy(batch, &base, 8);
    memset(batch + 12, 0, 4);
    for (int32_t done = 0; done < size;) {
        ssize_t n = pwrite(p->fd, batch + done, (size_t)(size - done), p->size + done);
        if (n < 0) die("pwrite");
        done += (int32_t)n;
    }
    if (p->index_count == p->index_capacity) {
        p->index_capacity = p->index_capacity ? p->index_capacity * 2 : 1024;
        p->index = realloc(p->index, p->index_capacity * sizeof *p->index);
        if (!p->index) die("realloc");
    }
    p->index[p->index_count++] = (IndexEntry){p->end_offset, p->size};
    p->size += size;
}

static void append_and_count(Partition *p, const Topic *topic, int32_t index, unsigned char *batch, int32_t size) {
    append_file(p, topic, index, batch, size);
    p->end_offset += load32(batch + 57);
}

/* Appends with the fault asked for; the answer is that of an honest append, so it may name an offset that is wrong. */
static void cheat(Partition *p, const Topic *topic, int32_t index, unsigned char *batch, int32_t size) {
    bool due = ++p->batch_count % FAULT_INTERVAL == 0;
    if (due && fault == FAULT_FORGET) return;
    if (due && fault == FAULT_MOVE) {
        int32_t other = (index + 1) % partition_count;
        append_and_count(&topic->partitions[other], topic, other, batch, size); /* one thread: no lock needed */
        return;
    }
    if (due && fault == FAULT_SWAP) {
        p->held = malloc((size_t)size);
        if (!p->held) die("malloc");
        memcpy(p->held, batch, (size_t)size);
        p->held_size = size;
        return;
    }
    if (due && fault == FAULT_FLIP) {
        batch[size - 4] ^= 1;
        uint32_t crc = htobe32(crc32c(batch + 21, (size_t)size - 21));
        memcpy(batch + 17, &crc, 4);
    }
    append_and_count(p, topic, index, batch, size);
    if (due && fault == FAULT_DOUBLE) append_and_count(p, topic, index, batch, size);
    if (p->held) {
        append_and_count(p, topic, index, p->held, p->held_size);
        free(p->held);
        p->held = NULL;
    }
}

static int16_t append_batch(Partition *p, const Topic *topic, int32_t index, unsigned char *batch, int32_t size,
                            bool flush, int64_t *base) {
    *base = -1;
    if (size < BATCH_HEADER_SIZE || load32(batch + 8) != size - 12) return 2;
    int32_t record_count = load32(batch + 57);
    if (mode != MODE_ACK && crc32c(batch + 21, (size_t)size - 21) != (uint32_t)load32(batch + 17)) return 2;
    pthread_mutex_lock(&p->lock);
    *base = p->end_offset;
    if (fault != FAULT_NONE) {
        cheat(p, topic, index, batch, size);
    } else {
        if (mode == MODE_APPEND) append_file(p, topic, index, batch, size);
        p->end_offset += record_count;
    }
    pthread_mutex_unlock(&p->lock);
    if (flush && mode == MODE_APPEND && p->fd >= 0 && fdatasync(p->fd)) die("fdatasync");
    return 0;
}

/* Index of the batch that holds `offset`; index_count when the offset is the end. */
static size_t find_batch(const Partition *p, int64_t offset) {
    size_t low = 0, high = p->index_count;
    if (offset >= p->end_offset) return p->index_count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (p->index[middle].offset <= offset) low = middle; else high = middle;
    }
    return low;
}

/* Whole batches from `offset` on, at most size_max bytes but at least one batch. */
static int64_t locate(Partition *p, int64_t offset, int64_t size_max, int64_t *position) {
    size_t first = find_batch(p, offset);
    if (first >= p->index_count) return 0;
    *position = p->index[first].position;
    if (p->size - *position <= size_max) return p->size - *position;
    size_t low = first + 1, high = p->index_count - 1;
    while (high > low) {
        size_t middle = (low + high + 1) / 2;
        if (p->index[middle].position - *position <= size_max) low = middle; else high = middle - 1;
    }
    return (low < p->index_count ? p->index[low].position : p->size) - *position;
}

/* ---- requests: each returns false when the frame makes no sense ------------------------------------------------- */

static bool serve_api_versions(Connection *c, int16_t version) {
    bool known = version <= 3;
    put16(c, known ? 0 : 35);
    if (known && version == 3) put8(c, SERVED_COUNT + 1); else put32(c, SERVED_COUNT);
    for (int i = 0; i < SERVED_COUNT; i++) {
        for (int j = 0; j < 3; j++) put16(c, SERVED[i][j]);
        if (known && version == 3) put8(c, 0);
    }
    if (known && version >= 1) put32(c, 0);
    if (known && version == 3) put8(c, 0);
    return true;
}

static void put_topic_metadata(Connection *c, int16_t version, const unsigned char *name, int16_t name_size) {
    Topic *topic = find_topic(name, name_size);
    put16(c, topic ? 0 : 3);
    put_string(c, name, name_size);
    if (version >= 1) put8(c, 0);
    put32(c, topic ? partition_count : 0);
    for (int32_t i = 0; topic && i < partition_count; i++) {
        const int32_t values[] = {i, 0, 1, 0, 1, 0}; /* partition, leader, 1 replica, 1 in sync */
        put16(c, 0);
        for (int j = 0; j < 6; j++) put32(c, values[j]);
    }
}

static bool serve_metadata(Connection *c, int16_t version, Reader *r) {
    if (version >= 3) put32(c, 0);
    put32(c, 1);
    put32(c, 0);
    put_string(c, "127.0.0.1", 9);
    put32(c, port);
    if (version >= 1) put16(c, -1);
    if (version >= 2) put_string(c, "null", 4);
    if (version >= 1) put32(c, 0);
    int32_t count = get32(r);
    if (count > TOPIC_COUNT_MAX) return false;
    put32(c, count < 0 ? topic_count : count);
    for (int32_t i = 0; count < 0 && i < topic_count; i++)
        put_topic_metadata(c, version, (unsigned char *)topics[i].name, topics[i].name_size);
    for (int32_t i = 0; i < count; i++) {
        int16_t size;
        const unsigned char *name = get_string(r, &size);
        if (r->failed) return false;
        put_topic_metadata(c, version, name, size);
    }
    return true;
}

static bool serve_produce(Connection *c, int16_t version, Reader *r, bool *answer) {
    int16_t size;
    get_string(r, &size);
    int16_t acks = get16(r);
    *answer = acks != 0;
    get32(r);
    int32_t count = get32(r);
    put32(c, count);
    for (int32_t i = 0; i < count && !r->failed; i++) {
        const unsigned char *name = get_string(r, &size);
        Topic *topic = find_topic(name, size);
        put_string(c, name, size);
        int32_t parts = get32(r);
        put32(c, parts);
        for (int32_t j = 0; j < parts && !r->failed; j++) {
            int32_t index = get32(r), records_size = get32(r);
            unsigned char *records = (unsigned char *)(uintptr_t)take(r, records_size);
            Partition *p = find_partition(topic, index);
            int64_t base = -1;
            int16_t error = p && records ? append_batch(p, topic, index, records, records_size, acks == -1, &base) : 3;
            put32(c, index);
            put16(c, error);
            put64(c, base);
            put64(c, -1);
            if (version >= 5) put64(c, 0);
        }
    }
    put32(c, 0);
    return !r->failed;
}

static bool serve_list_offsets(Connection *c, int16_t version, Reader *r) {
    int16_t size;
    get32(r);
    if (version >= 2) {
        get8(r);
        put32(c, 0);
    }
    int32_t count = get32(r);
    put32(c, count);
    for (int32_t i = 0; i < count && !r->failed; i++) {
        const unsigned char *name = get_string(r, &size);
        Topic *topic = find_topic(name, size);
        put_string(c, name, size);
        int32_t parts = get32(r);
        put32(c, parts);
        for (int32_t j = 0; j < parts && !r->failed; j++) {
            int32_t index = get32(r);
            int64_t timestamp = get64(r);
            Partition *p = find_partition(topic, index);
            put32(c, index);
            put16(c, p ? 0 : 3);
            put64(c, -1);
            put64(c, !p ? -1 : timestamp == -1 ? p->end_offset : 0);
        }
    }
    return !r->failed;
}

typedef struct { int16_t version; int32_t wait_ms; int64_t budget, total; } FetchState;

static void fetch_partition(Connection *c, Reader *r, Topic *topic, FetchState *f) {
    int32_t index = get32(r);
    if (f->version >= 9) get32(r);
    int64_t offset = get64(r);
    if (f->version >= 5) get64(r);
    int64_t size_max = get32(r), position = 0, size = 0;
    Partition *p = find_partition(topic, index);
    int16_t error = p ? 0 : 3;
    int64_t end = -1;
    if (p) {
        pthread_mutex_lock(&p->lock);
        end = p->end_offset;
        if (offset < 0 || offset > end) error = 1;
        else if (f->budget > 0) size = locate(p, offset, size_max < f->budget ? size_max : f->budget, &position);
        pthread_mutex_unlock(&p->lock);
    }
    put32(c, index);
    put16(c, error);
    put64(c, end);
    put64(c, end);
    if (f->version >= 5) put64(c, 0);
    put32(c, -1);
    if (f->version >= 11) put32(c, -1);
    put32(c, (int32_t)size);
    if (size) put_file(c, p->fd, position, size);
    f->budget -= size;
    f->total += error ? 1 : size;
}

static bool serve_fetch(Connection *c, Reader *r, FetchState *f) {
    int16_t name_size;
    get32(r);
    f->wait_ms = get32(r);
    get32(r);
    f->budget = get32(r);
    get8(r);
    if (f->version >= 7) take(r, 8);
    put32(c, 0);
    if (f->version >= 7) {
        put16(c, 0);
        put32(c, 0);
    }
    int32_t count = get32(r);
    put32(c, count);
    for (int32_t i = 0; i < count && !r->failed; i++) {
        const unsigned char *name = get_string(r, &name_size);
        Topic *topic = find_topic(name, name_size);
        put_string(c, name, name_size);
        int32_t parts = get32(r);
        put32(c, parts);
        for (int32_t j = 0; j < parts && !r->failed; j++) fetch_partition(c, r, topic, f);
    }
    return !r->failed;
}

/* ---- framing and output ---------------------------------------------------------------------------------------- */

static size_t file_bytes_since(const Connection *c, int item) {
    size_t total = 0;
    for (int i = item; i < c->item_count; i++)
        if (c->items[i].is_file) total += c->items[i].size;
    return total;
}

/* Serves one frame. 1 answered (or needs no answer), 0 parked, -1 nonsense. */
static int serve_frame(Connection *c, const unsigned char *frame, size_t size, bool may_park) {
    Reader r = {frame, frame + size, false};
    int16_t key = get16(&r), version = get16(&r), client_size;
    int32_t correlation = get32(&r);
    get_string(&r, &client_size);
    if (r.failed) return -1;
    size_t start = c->output_size;
    int item = c->item_count;
    bool ok = false, answer = true;
    FetchState fetch = {.version = version};
    put32(c, 0);
    put32(c, correlation);
    if (key == API_PRODUCE && version >= 3 && version <= 7) ok = serve_produce(c, version, &r, &answer);
    else if (key == API_FETCH && version >= 4 && version <= 11) ok = serve_fetch(c, &r, &fetch);
    else if (key == API_LIST_OFFSETS && version >= 1 && version <= 2) ok = serve_list_offsets(c, version, &r);
    else if (key == API_METADATA && version >= 0 && version <= 4) ok = serve_metadata(c, version, &r);
    else if (key == API_VERSIONS) ok = serve_api_versions(c, version);
    else if (key == API_FIND_COORDINATOR && version == 0) {
        put16(c, 0);
        put32(c, 0);
        put_string(c, "127.0.0.1", 9);
        put32(c, port);
        ok = true;
    }
    if (!ok) return -1;
    if (!answer || (key == API_FETCH && fetch.total == 0 && fetch.wait_ms > 0 && may_park)) {
        c->output_size = start;
        c->mark = start < c->mark ? start : c->mark;
        if (answer) c->parked_until_ms = now_ms() + fetch.wait_ms;
        return answer ? 0 : 1;
    }
    uint32_t length = htobe32((uint32_t)(c->output_size - start - 4 + file_bytes_since(c, item)));
    memcpy(c->output + start, &length, 4);
    close_buffer_item(c);
    return 1;
}

/* Sends what is queued. 1 all gone, 0 the socket is full, -1 the peer is gone. */
static int flush_output(Connection *c) {
    while (c->item_next < c->item_count) {
        OutputItem *item = &c->items[c->item_next];
        bool more = c->item_next + 1 < c->item_count;
        ssize_t n = item->is_file ? sendfile(c->fd, item->fd, &item->position, item->size)
                                  : send(c->fd, c->output + item->start, item->size, more ? MSG_MORE : 0);
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        if (n == 0) return -1;
        if (!item->is_file) item->start += (size_t)n;
        item->size -= (size_t)n;
        if (item->size == 0) c->item_next++;
    }
    c->item_count = c->item_next = 0;
    c->output_size = c->mark = 0;
    return 1;
}

static bool serve_input(Connection *c) {
    size_t position = 0;
    while (c->input_size - position >= 4 && c->parked_until_ms == 0 && c->item_count < OUTPUT_ITEM_COUNT_MAX / 2) {
        int32_t size = load32(c->input + position);
        if (size < 8 || size > FRAME_SIZE_MAX) return false;
        if (c->input_size - position - 4 < (size_t)size) break;
        int result = serve_frame(c, c->input + position + 4, (size_t)size, true);
        if (result < 0) return false;
        if (result == 0) break; /* parked: the frame stays in front */
        position += 4 + (size_t)size;
    }
    c->input_size -= position;
    if (position && c->input_size) memmove(c->input, c->input + position, c->input_size);
    return true;
}

static bool ensure_input(Connection *c) {
    size_t need = INPUT_SIZE_MIN;
    if (c->input_size >= 4) {
        int32_t size = load32(c->input);
        if (size < 8 || size > FRAME_SIZE_MAX) return false;
        if ((size_t)size + 4 > need) need = (size_t)size + 4;
    }
    if (c->input_capacity < need || c->input_capacity == c->input_size) {
        c->input_capacity = need > c->input_capacity ? need : c->input_capacity * 2;
        c->input = realloc(c->input, c->input_capacity);
        if (!c->input) die("realloc");
    }
    return true;
}

/* One readiness event: receive once, serve all whole frames, send once. False ends the connection. */
static bool run_connection(Worker *w, Connection *c, uint32_t events) {
    if (events & EPOLLIN) {
        if (!ensure_input(c)) return false;
        ssize_t n = recv(c->fd, c->input + c->input_size, c->input_capacity - c->input_size, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
        if (n > 0) c->input_size += (size_t)n;
    } else if (events & (EPOLLHUP | EPOLLERR)) {
        return false;
    }
    for (;;) {
        size_t before = c->input_size;
        if (c->item_count == 0 && !serve_input(c)) return false;
        int sent = flush_output(c);
        if (sent < 0) return false;
        bool wants_write = sent == 0;
        if (wants_write != c->wants_write) {
            struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
            if (wants_write) event.events = EPOLLOUT;
            epoll_ctl(w->epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
            c->wants_write = wants_write;
        }
        if (wants_write || c->input_size == before || c->parked_until_ms) return true;
    }
}

static void drop_connection(Worker *w, Connection *c) {
    close(c->fd);
    pthread_mutex_lock(&w->lock);
    Connection *last = w->connections[--w->count];
    w->connections[c->slot] = last;
    last->slot = c->slot;
    pthread_mutex_unlock(&w->lock);
    free(c->input);
    free(c->output);
    free(c);
}

static Connection *connection_at(Worker *w, int slot) {
    pthread_mutex_lock(&w->lock); /* the acceptor may be moving the array */
    Connection *c = slot < w->count ? w->connections[slot] : NULL;
    pthread_mutex_unlock(&w->lock);
    return c;
}

/* Fetches at the end of the log: answered when data came or their time is up, looked at every millisecond. */
static int serve_parked(Worker *w) {
    int timeout = -1;
    int64_t now = now_ms();
    for (int i = w->count - 1; i >= 0; i--) {
        Connection *c = connection_at(w, i);
        if (!c || !c->parked_until_ms) continue;
        timeout = 1;
        bool expired = now >= c->parked_until_ms;
        int64_t until = c->parked_until_ms;
        c->parked_until_ms = 0;
        size_t size = (size_t)load32(c->input);
        int result = serve_frame(c, c->input + 4, size, !expired);
        if (result == 0) c->parked_until_ms = until;
        if (result == 1) {
            c->input_size -= size + 4;
            memmove(c->input, c->input + size + 4, c->input_size);
            if (flush_output(c) < 0) result = -1;
        }
        if (result < 0) drop_connection(w, c);
    }
    return timeout;
}

static void *run_worker(void *argument) {
    Worker *w = argument;
    struct epoll_event events[EVENT_COUNT_MAX];
    for (;;) {
        int timeout = serve_parked(w);
        int n = epoll_wait(w->epoll_fd, events, EVENT_COUNT_MAX, timeout);
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            if (!run_connection(w, c, events[i].events)) drop_connection(w, c);
        }
    }
    return NULL;
}

static void add_connection(Worker *w, int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Connection *c = calloc(1, sizeof *c);
    if (!c) die("calloc");
    c->fd = fd;
    pthread_mutex_lock(&w->lock);
    if (w->count == w->capacity) {
        w->capacity = w->capacity ? w->capacity * 2 : 64;
        w->connections = realloc(w->connections, (size_t)w->capacity * sizeof *w->connections);
        if (!w->connections) die("realloc");
    }
    c->slot = w->count;
    w->connections[w->count++] = c;
    pthread_mutex_unlock(&w->lock);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

static int listen_on_loopback(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0) die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 1024)) die("bind");
    socklen_t size = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &size);
    port = ntohs(address.sin_port);
    return fd;
}

static void write_ready_file(const char *path) {
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "w");
    if (!file) die(temporary);
    fprintf(file, "127.0.0.1:%d\n", port);
    fclose(file);
    if (rename(temporary, path)) die(path);
}

static Mode parse_mode(const char *text) {
    if (!strcmp(text, "ack")) return MODE_ACK;
    if (!strcmp(text, "crc")) return MODE_CRC;
    if (!strcmp(text, "append")) return MODE_APPEND;
    fprintf(stderr, "--mode must be ack, crc or append, not %s\n", text);
    exit(2);
}

static Fault parse_fault(const char *text) {
    for (int i = 0; i < FAULT_COUNT; i++)
        if (!strcmp(text, FAULT_NAMES[i])) return (Fault)i;
    fprintf(stderr, "--fault must be none, forget, double, flip, move or swap, not %s\n", text);
    exit(2);
}

int main(int argc, char **argv) {
    const char *ready_file = NULL;
    static const struct option options[] = {
        {"mode", required_argument, 0, 'm'},       {"port", required_argument, 0, 'p'},
        {"threads", required_argument, 0, 't'},    {"fault", required_argument, 0, 'f'},
        {"data-dir", required_argument, 0, 'd'},   {"partitions", required_argument, 0, 'n'},
        {"ready-file", required_argument, 0, 'r'}, {0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'm') mode = parse_mode(optarg);
        else if (option == 'p') port = atoi(optarg);
        else if (option == 't') thread_count = atoi(optarg);
        else if (option == 'd') data_dir = optarg;
        else if (option == 'n') partition_count = atoi(optarg);
        else if (option == 'r') ready_file = optarg;
        else if (option == 'f') fault = parse_fault(optarg);
        else return 2;
    }
    if (fault != FAULT_NONE && (mode != MODE_APPEND || thread_count != 1)) {
        fprintf(stderr, "--fault needs --mode append and one thread\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    crc32c_prepare();
    int listener = listen_on_loopback();
    workers = calloc((size_t)thread_count, sizeof *workers);
    for (int i = 0; i < thread_count; i++) {
        pthread_t thread;
        workers[i].epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        pthread_mutex_init(&workers[i].lock, NULL);
        if (pthread_create(&thread, NULL, run_worker, &workers[i])) die("pthread_create");
    }
    if (ready_file) write_ready_file(ready_file);
    for (int next = 0;; next++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) add_connection(&workers[next % thread_count], fd);
    }
}
