/* Produce or consume N messages through librdkafka, and print the result as one line of JSON.
 *
 *   rdk_bench produce --brokers H:P --topic T --count N --size S [--partitions K] [--reports] [-X key=value]...
 *   rdk_bench consume --brokers H:P --topic T --count N [--partitions K] [-X key=value]...
 *
 * produce writes to partitions 0..K-1 in turn, in runs of 1000 messages. It stops the clock when librdkafka's queue is
 * empty, which means that every message was answered. Without --reports, only failed messages get a delivery report.
 *
 * consume uses the legacy queue interface (no group), starts at offset 0 and stops after N messages. `hash` is a sum
 * over sizes and offsets, so that the compiler cannot remove the work. CPU seconds are this process's own.
 */
#include <getopt.h>
#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { RUN_LENGTH = 1000, CONSUME_BATCH = 5000 };

typedef struct {
    const char *brokers, *topic;
    int64_t count;
    int size, partition_count;
    bool reports;
} Options;

static int64_t failed_count, delivered_count;

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what, const char *why) {
    fprintf(stderr, "rdk_bench: %s: %s\n", what, why);
    exit(1);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk;
    (void)opaque;
    if (!message->err) {
        delivered_count++;
    } else if (failed_count++ == 0) {
        fprintf(stderr, "rdk_bench: delivery: %s\n", rd_kafka_err2str(message->err));
    }
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, key, value, error, sizeof error) != RD_KAFKA_CONF_OK) fail(key, error);
}

static void set_pair(rd_kafka_conf_t *conf, char *pair) {
    char *equals = strchr(pair, '=');
    if (!equals) fail(pair, "expected key=value");
    *equals = 0;
    set(conf, pair, equals + 1);
}

static rd_kafka_t *start_client(rd_kafka_type_t type, rd_kafka_conf_t *conf, const Options *o) {
    char error[512];
    set(conf, "bootstrap.servers", o->brokers);
    rd_kafka_t *rk = rd_kafka_new(type, conf, error, sizeof error);
    if (!rk) fail("client", error);
    return rk;
}

static rd_kafka_topic_t *open_topic(rd_kafka_t *rk, const Options *o) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, o->topic, NULL);
    if (!topic) fail(o->topic, rd_kafka_err2str(rd_kafka_last_error()));
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error = rd_kafka_metadata(rk, 0, topic, &metadata, 10000);
    if (error) fail("metadata", rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

static void report(const char *what, const Options *o, double wall, double cpu, uint64_t hash) {
    printf("{\"what\": \"%s\", \"count\": %lld, \"wall_s\": %.6f, \"rate_per_s\": %.1f, \"client_cpu_s\": %.6f, "
           "\"failed\": %lld, \"hash\": \"%016llx\", \"librdkafka\": \"%s\"}\n",
           what, (long long)o->count, wall, (double)o->count / wall, cpu, (long long)failed_count,
           (unsigned long long)hash, rd_kafka_version_str());
}

static void produce(rd_kafka_conf_t *conf, const Options *o) {
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    if (!o->reports) set(conf, "delivery.report.only.error", "true");
    rd_kafka_t *rk = start_client(RD_KAFKA_PRODUCER, conf, o);
    rd_kafka_topic_t *topic = open_topic(rk, o);
    char *payload = malloc((size_t)o->size + 1);
    for (int i = 0; i < o->size; i++) payload[i] = (char)('a' + i % 26);
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int64_t i = 0; i < o->count; i++) {
        int32_t partition = (int32_t)(i / RUN_LENGTH % o->partition_count);
        while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, payload, (size_t)o->size, NULL, 0, NULL)) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(rk, 1);
        }
        if (i % 1024 == 0) rd_kafka_poll(rk, 0);
    }
    rd_kafka_resp_err_t error = rd_kafka_flush(rk, 60000);
    if (error) fail("flush", rd_kafka_err2str(error));
    wall = seconds(CLOCK_MONOTONIC) - wall;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    report("produce", o, wall, cpu, (uint64_t)delivered_count);
    free(payload);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    if (failed_count) exit(1);
}

static void consume(rd_kafka_conf_t *conf, const Options *o) {
    rd_kafka_t *rk = start_client(RD_KAFKA_CONSUMER, conf, o);
    rd_kafka_topic_t *topic = open_topic(rk, o);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_message_t **messages = malloc(CONSUME_BATCH * sizeof *messages);
    uint64_t hash = 0;
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), progress = wall;
    for (int i = 0; i < o->partition_count; i++)
        if (rd_kafka_consume_start_queue(topic, i, 0, queue)) fail("start", rd_kafka_err2str(rd_kafka_last_error()));
    for (int64_t done = 0; done < o->count;) {
        ssize_t n = rd_kafka_consume_batch_queue(queue, 100, messages, CONSUME_BATCH);
        double now = seconds(CLOCK_MONOTONIC);
        if (n > 0) progress = now;
        if (now - progress > 10) fail("consume", "nothing came for 10 s");
        for (ssize_t i = 0; i < n; i++) {
            if (!messages[i]->err && done < o->count) {
                hash += (uint64_t)messages[i]->offset * 31 + messages[i]->len;
                done++;
            }
            rd_kafka_message_destroy(messages[i]);
        }
    }
    wall = seconds(CLOCK_MONOTONIC) - wall;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    report("consume", o, wall, cpu, hash);
    fflush(stdout);
    _Exit(0); /* closing would drain what was prefetched, which is nobody's question */
}

int main(int argc, char **argv) {
    Options o = {.partition_count = 1, .size = 200};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    static const struct option options[] = {
        {"brokers", required_argument, 0, 'b'}, {"topic", required_argument, 0, 't'},
        {"count", required_argument, 0, 'n'},   {"size", required_argument, 0, 's'},
        {"partitions", required_argument, 0, 'p'}, {"reports", no_argument, 0, 'r'}, {0}};
    for (int option; (option = getopt_long(argc, argv, "X:", options, NULL)) != -1;) {
        if (option == 'b') o.brokers = optarg;
        else if (option == 't') o.topic = optarg;
        else if (option == 'n') o.count = atoll(optarg);
        else if (option == 's') o.size = atoi(optarg);
        else if (option == 'p') o.partition_count = atoi(optarg);
        else if (option == 'r') o.reports = true;
        else if (option == 'X') set_pair(conf, optarg);
        else return 2;
    }
    if (optind >= argc || !o.brokers || !o.topic || o.count <= 0 || o.partition_count <= 0) {
        fprintf(stderr, "usage: rdk_bench produce|consume --brokers H:P --topic T --count N [options]\n");
        return 2;
    }
    if (!strcmp(argv[optind], "produce")) produce(conf, &o);
    else if (!strcmp(argv[optind], "consume")) consume(conf, &o);
    else return 2;
    return 0;
}
