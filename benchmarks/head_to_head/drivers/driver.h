/* Common parts of the C load drivers: command line, clocks, progress, histogram, schedule, and the line of JSON.
 *
 *   run_open ─▶ run_take_acks ─▶ connect ─┬─ run_begin ─▶ run_advance or run_take ... ─▶ run_end ─┬─▶ run_report
 *                                         └─ latency_run(send, flush, receive with run_take) ───┘
 *
 * A latency message begins with a stamp: its due time in nanoseconds and its number from 0, both int64. Its latency
 * counts from the due time, even if earlier messages are late. So a system that stalls is charged for all messages that
 * had to wait.
 *
 * Thread rule: main works. A watchdog ends the program with an error if there is no progress for --timeout seconds.
 * latency_run receives in a separate thread. main writes a Run, except for `moved` and, in latency runs, the counts of
 * received messages.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef enum { MODE_PRODUCE, MODE_CONSUME, MODE_LATENCY } Mode;
typedef enum { ACK_NONE, ACK_ONE, ACK_DISK, ACK_UNSET } Ack;

enum {
    MARK_COUNT_MAX = 128, /* one each hundredth of the messages, and the last */
    STAMP_SIZE = 16,
    SIZE_MAX_BYTES = 64 << 20,
    SUB_BUCKET_BITS = 7, /* 128 buckets from each power of two to the next: at most 1/128 wide */
    BUCKET_COUNT = (64 - SUB_BUCKET_BITS + 1) << SUB_BUCKET_BITS,
};
static const uint64_t LATE_NS = 1000000, START_DELAY_NS = 200000000;

typedef struct {
    double elapsed_s;
    int64_t count;
} Mark;

typedef struct {
    const char *driver, *host, *topic;
    Mode mode;
    Ack ack;
    int port, size, batch, in_flight;
    int64_t messages; /* of a latency run: those that count */
    double rate, seconds, warm_up_s, timeout_s;

    uint64_t begin_ns;
    double cpu_begin_s, elapsed_s, cpu_s;
    _Atomic int64_t moved; /* what the watchdog looks at */
    int64_t count, bytes, next_mark;
    Mark marks[MARK_COUNT_MAX];
    int mark_count;

    uint64_t origin_ns; /* when message 0 of a latency run is due */
    int64_t warm_up, total, received, sent_late;
    uint64_t *buckets;
} Run;

static const char *program_name = "driver";
static const char *const ack_names[] = {"none", "one", "disk"};

/* ---- failing, clocks ------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3), noreturn)) static void end_with(int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    _exit(status);
}

#define fail(...) end_with(1, __VA_ARGS__)
#define refuse(...) end_with(2, __VA_ARGS__)

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* User and system time of this process, all threads. */
static inline double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* ---- histogram ------------------------------------------------------------------------------------------------- */

static inline int bucket_of(uint64_t value) {
    if (value < 1u << SUB_BUCKET_BITS) return (int)value;
    int shift = 63 - __builtin_clzll(value) - SUB_BUCKET_BITS;
    return (shift << SUB_BUCKET_BITS) + (int)(value >> shift);
}

/* The first value above the bucket. */
static inline double bucket_end(int bucket) {
    if (bucket < 2 << SUB_BUCKET_BITS) return bucket + 1;
    int shift = (bucket >> SUB_BUCKET_BITS) - 1;
    return ldexp((double)(bucket - (shift << SUB_BUCKET_BITS) + 1), shift);
}

static inline void print_histogram(const uint64_t *buckets) {
    const char *separator = "";
    for (int i = 0; i < BUCKET_COUNT; i++) {
        if (!buckets[i]) continue;
        printf("%s[%.3f, %llu]", separator, bucket_end(i) / 1000, (unsigned long long)buckets[i]);
        separator = ", ";
    }
}

/* ---- a run ----------------------------------------------------------------------------------------------------- */

static inline void *watch(void *argument) {
    Run *run = argument;
    int64_t seen = -1;
    for (uint64_t since = now_ns();; usleep(100000)) {
        int64_t moved = atomic_load_explicit(&run->moved, memory_order_relaxed);
        if (moved != seen) {
            seen = moved;
            since = now_ns();
        } else if ((double)(now_ns() - since) > run->timeout_s * 1e9) {
            fail("no progress for %g s after %lld of %lld messages", run->timeout_s, (long long)moved,
                 (long long)(run->mode == MODE_LATENCY ? run->total : run->messages));
        }
    }
    return NULL;
}

static inline void run_begin(Run *run) {
    run->next_mark = 1;
    run->cpu_begin_s = cpu_seconds();
    run->begin_ns = now_ns();
}

static inline void run_mark(Run *run) {
    if (run->mark_count < MARK_COUNT_MAX)
        run->marks[run->mark_count++] = (Mark){(double)(now_ns() - run->begin_ns) * 1e-9, run->count};
    int64_t step = (run->messages + 99) / 100;
    run->next_mark = run->count / step * step + step;
    if (run->next_mark > run->messages) run->next_mark = run->messages;
}

/* So many messages are done, from the first. */
static inline void run_advance(Run *run, int64_t count) {
    run->count = count;
    atomic_store_explicit(&run->moved, count, memory_order_relaxed);
    if (count >= run->next_mark && run->mark_count < MARK_COUNT_MAX) run_mark(run);
}

/* One more message came; all must have one size. */
static inline void run_receive(Run *run, size_t size) {
    if (run->count == 0) run->size = (int)size;
    if (size != (size_t)run->size) fail("message %lld has %zu bytes, not %d", (long long)run->count, size, run->size);
    run->bytes += (int64_t)size;
    run_advance(run, run->count + 1);
}

static inline void run_end(Run *run) {
    run->elapsed_s = (double)(now_ns() - run->begin_ns) * 1e-9;
    run->cpu_s = cpu_seconds() - run->cpu_begin_s;
    if (run->count != run->messages)
        fail("%lld messages were asked for, %lld counted", (long long)run->messages, (long long)run->count);
    if (run->mode == MODE_PRODUCE) run->bytes = run->messages * run->size;
}

/* Prints the line of JSON and ends: tearing a client down is nobody's question. */
__attribute__((noreturn)) static inline void run_report(const Run *run, const char *client) {
    printf("{\"driver\": \"%s\", \"client\": \"%s\", \"messages\": %lld, \"bytes\": %lld, \"seconds\": %.6f, "
           "\"cpu_s\": %.6f, \"progress\": [",
           run->driver, client, (long long)run->messages, (long long)run->bytes, run->elapsed_s, run->cpu_s);
    for (int i = 0; i < run->mark_count; i++)
        printf("%s[%.6f, %lld]", i ? ", " : "", run->marks[i].elapsed_s, (long long)run->marks[i].count);
    printf("]");
    if (run->mode == MODE_LATENCY) {
        printf(", \"sent_late\": %lld, \"histogram_us\": [", (long long)run->sent_late);
        print_histogram(run->buckets);
        printf("]");
    }
    printf("}\n");
    fflush(stdout);
    _exit(ferror(stdout) ? 1 : 0);
}

/* A payload of the run's size; the caller keeps it. */
static inline char *make_payload(const Run *run) {
    char *payload = malloc((size_t)run->size + STAMP_SIZE);
    if (!payload) fail("no memory for a message of %d bytes", run->size);
    for (int i = 0; i < run->size + STAMP_SIZE; i++) payload[i] = (char)('a' + i % 26);
    return payload;
}

typedef void (*SendBatch)(void *state, const char *payload, int64_t count);

/* Produces in batches while at most run->in_flight of them are not wholly acknowledged. `send` sends so many messages
 * of this payload at once; `take` waits for an acknowledgement and returns how many came. Without `take` none comes,
 * and a message counts when `send` returns. */
static inline void produce_in_window(Run *run, void *state, SendBatch send, int64_t (*take)(void *state)) {
    char *payload = make_payload(run);
    int64_t window = (int64_t)run->batch * run->in_flight, sent = 0;
    run_begin(run);
    while (run->count < run->messages) {
        int64_t left = run->messages - sent, count = left < run->batch ? left : run->batch;
        if (count && (!take || sent - run->count + count <= window)) {
            send(state, payload, count);
            sent += count;
            if (!take) run_advance(run, sent);
        } else {
            run_advance(run, run->count + take(state));
        }
    }
    run_end(run);
    free(payload);
}

/* ---- latency --------------------------------------------------------------------------------------------------- */

static inline uint64_t due_ns(const Run *run, int64_t number) {
    return run->origin_ns + (uint64_t)((double)number * 1e9 / run->rate);
}

/* Sleeps until message `next` is due; how many are due by now, from the first. */
static inline int64_t wait_until_due(const Run *run, int64_t next) {
    uint64_t due = due_ns(run, next);
    struct timespec until = {.tv_sec = (time_t)(due / 1000000000u), .tv_nsec = (long)(due % 1000000000u)};
    while (now_ns() < due) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    int64_t count = (int64_t)((double)(now_ns() - run->origin_ns) * run->rate / 1e9) + 1;
    if (count > run->total) count = run->total;
    return count > next ? count : next + 1;
}

static inline void stamp(Run *run, int64_t number, char *payload) {
    uint64_t due = due_ns(run, number);
    if (number == run->warm_up) run_begin(run);
    if (number >= run->warm_up && now_ns() > due + LATE_NS) run->sent_late++;
    memcpy(payload, &due, 8);
    memcpy(payload + 8, &number, 8);
}

/* A message of a latency run came: they must come whole and in order, each once. */
static inline void latency_receive(Run *run, const void *payload, size_t size) {
    uint64_t due, now = now_ns();
    int64_t number;
    if (size != (size_t)run->size)
        fail("a message has %zu bytes, not %d; use a new topic", size, run->size);
    memcpy(&due, payload, 8);
    memcpy(&number, (const char *)payload + 8, 8);
    if (number != run->received)
        fail("message %lld arrived instead of %lld", (long long)number, (long long)run->received);
    run->received++;
    if (number >= run->warm_up) {
        run->buckets[bucket_of(now > due ? now - due : 0)]++;
        run->bytes += (int64_t)size;
        run_advance(run, number - run->warm_up + 1);
    }
    atomic_store_explicit(&run->moved, run->received, memory_order_relaxed);
}

/* A message came. */
static inline void run_take(Run *run, const void *payload, size_t size) {
    if (run->mode == MODE_LATENCY) latency_receive(run, payload, size);
    else run_receive(run, size);
}

/* Messages that have still to come. */
static inline int64_t run_left(const Run *run) {
    return run->mode == MODE_LATENCY ? run->total - run->received : run->messages - run->count;
}

/* Sends on schedule in this thread, `flush` after all that were due at once, while `receive` runs in another until
 * nothing is left. Both clients are connected and the receiver subscribed before. */
static inline void latency_run(Run *run, void *state, void (*send)(void *state, const char *payload),
                               void (*flush)(void *state), void *(*receive)(void *state)) {
    char *payload = make_payload(run);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    run->next_mark = INT64_MAX;
    run->origin_ns = now_ns() + START_DELAY_NS;
    pthread_t receiver;
    if (pthread_create(&receiver, NULL, receive, state)) fail("no thread to receive in");
    for (int64_t i = 0; i < run->total;) {
        for (int64_t due = wait_until_due(run, i); i < due; i++) {
            stamp(run, i, payload);
            send(state, payload);
        }
        if (flush) flush(state);
    }
    pthread_join(receiver, NULL);
    run_end(run);
    free(payload);
}

/* ---- command line ---------------------------------------------------------------------------------------------- */

static inline double number_of(const char *name, const char *text, double low, double high) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high))
        refuse("--%s must be a number from %.0f to %.0f, not '%s'", name, low, high, text);
    return value;
}

static inline int choice_of(const char *name, const char *text, const char *const *choices, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(text, choices[i])) return i;
    refuse("%s is '%s', which is none of those it can be", name, text);
}

static inline void run_option(Run *run, int option, const char *name, const char *text) {
    switch (option) {
    case 'h': run->host = text; break;
    case 'p': run->port = (int)number_of(name, text, 1, 65535); break;
    case 't': run->topic = text; break;
    case 'n': run->messages = (int64_t)number_of(name, text, 1, 1e12); break;
    case 's': run->size = (int)number_of(name, text, 1, SIZE_MAX_BYTES); break;
    case 'b': run->batch = (int)number_of(name, text, 1, 1e6); break;
    case 'w': run->in_flight = (int)number_of(name, text, 1, 1e6); break;
    case 'a': run->ack = (Ack)choice_of("--ack", text, ack_names, 3); break;
    case 'r': run->rate = number_of(name, text, 1, 1e7); break;
    case 'd': run->seconds = number_of(name, text, 0.1, 1e5); break;
    case 'u': run->warm_up_s = number_of(name, text, 0, 1e4); break;
    case 'o': run->timeout_s = number_of(name, text, 1, 1e5); break;
    default: refuse("an option is unknown or lacks its value");
    }
}

/* The run that the command line asks for, its watchdog started. Ends with status 2 and a sentence where it is wrong. */
static inline void run_open(Run *run, const char *driver, int argc, char **argv) {
    static const char *const modes[] = {"produce", "consume", "latency"};
    static const struct option options[] = {
        {"host", required_argument, 0, 'h'},    {"port", required_argument, 0, 'p'},
        {"topic", required_argument, 0, 't'},   {"messages", required_argument, 0, 'n'},
        {"size", required_argument, 0, 's'},    {"batch", required_argument, 0, 'b'},
        {"in-flight", required_argument, 0, 'w'}, {"ack", required_argument, 0, 'a'},
        {"rate", required_argument, 0, 'r'},    {"seconds", required_argument, 0, 'd'},
        {"warm-up", required_argument, 0, 'u'}, {"timeout", required_argument, 0, 'o'}, {0}};
    *run = (Run){.driver = driver, .host = "127.0.0.1", .ack = ACK_UNSET, .size = 200, .batch = 1, .in_flight = 1,
                 .warm_up_s = 1, .timeout_s = 30};
    program_name = driver;
    opterr = 0;
    if (argc < 2) refuse("the first argument must be produce, consume or latency");
    run->mode = (Mode)choice_of("the first argument", argv[1], modes, 3);
    for (int option, index = 0; (option = getopt_long(argc - 1, argv + 1, "", options, &index)) != -1;)
        run_option(run, option, option == '?' ? "" : options[index].name, optarg);
    if (optind != argc - 1) refuse("there is a word too many: '%s'", argv[1 + optind]);
    if (!run->port || !run->topic) refuse("--port and --topic are needed");
    if (run->mode != MODE_LATENCY && !run->messages) refuse("--messages is needed");
    if (run->mode == MODE_LATENCY) {
        if (!run->rate || !run->seconds) refuse("--rate and --seconds are needed");
        if (run->size < STAMP_SIZE) refuse("--size must be at least %d: a message carries its stamp", STAMP_SIZE);
        run->messages = (int64_t)(run->rate * run->seconds + 0.5);
        run->warm_up = (int64_t)(run->rate * run->warm_up_s);
        run->total = run->warm_up + run->messages;
        run->buckets = calloc(BUCKET_COUNT, sizeof *run->buckets);
        if (!run->messages || !run->buckets) refuse("--rate times --seconds is no message");
    }
    pthread_t watchdog;
    if (pthread_create(&watchdog, NULL, watch, run)) fail("no thread to watch in");
}

/* Takes `usual` where no --ack was given, and refuses what the system cannot promise. */
static inline void run_take_acks(Run *run, Ack usual, unsigned possible) {
    if (run->ack == ACK_UNSET) run->ack = usual;
    if (!(possible & 1u << run->ack)) refuse("this system does not support --ack %s", ack_names[run->ack]);
}

#endif
