/* A blocking connection for load drivers that implement a protocol themselves: whole writes, buffered reads.
 *
 * Received bytes that are not consumed yet are in data[begin..end).
 *
 * Thread rule: one thread per direction.
 */
#ifndef RAW_SOCKET_H
#define RAW_SOCKET_H

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "driver.h"

typedef struct {
    int fd;
    char *data;
    size_t begin, end, capacity;
} Input;

static inline int socket_open(const Run *run) {
    char port[16];
    snprintf(port, sizeof port, "%d", run->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int error = getaddrinfo(run->host, port, &hints, &found), fd = -1, one = 1;
    if (error) fail("%s is no host: %s", run->host, gai_strerror(error));
    for (struct addrinfo *at = found; at; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
        if (fd >= 0 && !connect(fd, at->ai_addr, at->ai_addrlen)) break;
        if (fd >= 0) close(fd);
        fd = -1;
    }
    if (fd < 0) fail("no connection to %s:%d: %s", run->host, run->port, strerror(errno));
    freeaddrinfo(found);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* All bytes to the kernel, however often it takes some of them. */
static inline void socket_send(int fd, const void *data, size_t size) {
    for (const char *at = data; size;) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("sending failed: %s", strerror(errno));
        at += n;
        size -= (size_t)n;
    }
}

static inline Input input_open(int fd, size_t capacity) {
    Input input = {.fd = fd, .data = malloc(capacity), .capacity = capacity};
    if (!input.data) fail("no memory for %zu bytes of input", capacity);
    return input;
}

static inline size_t input_size(const Input *input) { return input->end - input->begin; }

/* Receives what there is, at least one byte, after `need` bytes have room behind begin. */
static inline void input_fill(Input *input, size_t need) {
    if (need > input->capacity) fail("%zu bytes came at once, more than fit", need);
    if (input->begin == input->end) input->begin = input->end = 0;
    if (input->capacity - input->begin < need || input->end == input->capacity) {
        memmove(input->data, input->data + input->begin, input_size(input));
        input->end -= input->begin;
        input->begin = 0;
    }
    for (;;) {
        ssize_t n = recv(input->fd, input->data + input->end, input->capacity - input->end, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("receiving failed: %s", strerror(errno));
        if (n == 0) fail("the server closed the connection");
        input->end += (size_t)n;
        return;
    }
}

/* The next `size` bytes, which stay until the next call; they are not taken yet. */
static inline char *input_need(Input *input, size_t size) {
    while (input_size(input) < size) input_fill(input, size);
    return input->data + input->begin;
}

static inline void input_take(Input *input, size_t size) { input->begin += size; }

#endif
