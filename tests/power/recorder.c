/* Preloaded into a broker: every change of the files below POWER_ROOT, every sync and every send, in one total order.

   The trace is a file that all processes of a run map and append to (POWER_TRACE): a header, then records, each at a
   multiple of 8. A record's place in the file is its moment. Whatever changes a file is done and recorded under one
   lock, so that the order of the records is the order of the effects, and who holds the lock (recorder.py does when it
   kills) knows that no change is half recorded. A sync is recorded when it begins and when it ends, without the lock
   between: it covers what came before its beginning, and holds from its end on. A send is recorded before it is made.

   POWER_DELAY=n makes n of 1,000 syncs slow (8 ms, one in 12 of them 32 ms; a whole file system's 48 ms), so that what
   happens beside a sync happens more often. POWER_SEED seeds that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x31524557504b4cULL
#define HEADER_SIZE 4096
#define DESCRIPTORS_MAX 65536
#define SEND_KEPT_MAX 65536

enum {
    OPEN = 1, CLOSE, WRITE, TRUNCATE, ALLOCATE, RENAME, UNLINK, RMDIR, MKDIR, LINK, SYMLINK, SYNC_BEGIN, SYNC_END, DUP,
    SEND, MARK, PROCESS, UNSUPPORTED, TRUNCATE_PATH
};
enum { FSYNC, FDATASYNC, SYNCFS, SYNC_ALL, SYNC_RANGE };
enum { FLAG_ZEROS = 1, FLAG_FAILED = 2 };

struct header {
    uint64_t magic, size;
    _Atomic uint64_t next;
    _Atomic uint32_t lock;
    _Atomic uint32_t overflow;
};

struct record {
    uint32_t size;
    uint16_t kind, flags;
    uint32_t pid, tid;
    int64_t a, b, c;
    uint32_t path_size, data_size;
};

static struct header* trace;
static char root[PATH_MAX];
static size_t root_size;
static unsigned char tracked[DESCRIPTORS_MAX];
static unsigned delay_permille;
static uint64_t delay_seed;
static _Atomic uint64_t thread_count;

#define REAL(result, name, ...) \
    static result (*real_##name)(__VA_ARGS__); \
    __attribute__((constructor)) static void find_##name(void) { *(void**)&real_##name = dlsym(RTLD_NEXT, #name); }

REAL(int, open64, const char*, int, ...)
REAL(int, openat64, int, const char*, int, ...)
REAL(int, close, int)
REAL(ssize_t, write, int, const void*, size_t)
REAL(ssize_t, pwrite64, int, const void*, size_t, off_t)
REAL(ssize_t, writev, int, const struct iovec*, int)
REAL(ssize_t, pwritev64, int, const struct iovec*, int, off_t)
REAL(ssize_t, pwritev64v2, int, const struct iovec*, int, off_t, int)
REAL(int, ftruncate64, int, off_t)
REAL(int, truncate64, const char*, off_t)
REAL(int, fallocate64, int, int, off_t, off_t)
REAL(int, posix_fallocate64, int, off_t, off_t)
REAL(int, renameat2, int, const char*, int, const char*, unsigned)
REAL(int, unlinkat, int, const char*, int)
REAL(int, mkdirat, int, const char*, mode_t)
REAL(int, linkat, int, const char*, int, const char*, int)
REAL(int, symlinkat, const char*, int, const char*)
REAL(ssize_t, copy_file_range, int, off64_t*, int, off64_t*, size_t, unsigned)
REAL(ssize_t, sendfile64, int, int, off64_t*, size_t)
REAL(int, fsync, int)
REAL(int, fdatasync, int)
REAL(int, syncfs, int)
REAL(void, sync, void)
REAL(int, sync_file_range, int, off64_t, off64_t, unsigned)
REAL(int, dup, int)
REAL(int, fcntl64, int, int, ...)
REAL(int, dup2, int, int)
REAL(int, dup3, int, int, int)
REAL(void*, mmap64, void*, size_t, int, int, int, off_t)
REAL(ssize_t, send, int, const void*, size_t, int)
REAL(ssize_t, sendto, int, const void*, size_t, int, const struct sockaddr*, socklen_t)
REAL(ssize_t, sendmsg, int, const struct msghdr*, int)

/* ---- the trace ---- */
void power_lock(struct header* header) {
    uint32_t expected = 0;
    while (!atomic_compare_exchange_weak(&header->lock, &expected, 1)) {
        expected = 0;
        sched_yield();
    }
}

void power_unlock(struct header* header) { atomic_store(&header->lock, 0); }

static uint64_t append_record(struct header* header, int kind, int flags, int64_t a, int64_t b, int64_t c,
                              const char* path, const void* data, size_t data_size) {
    size_t path_size = path == NULL ? 0 : strlen(path);
    uint64_t size = (sizeof(struct record) + path_size + data_size + 7) & ~(uint64_t)7;
    uint64_t place = atomic_load(&header->next);
    if (place + size > header->size) {
        atomic_store(&header->overflow, 1);
        return place;
    }
    struct record* record = (struct record*)((char*)header + place);
    *record = (struct record){ .size = (uint32_t)size, .kind = (uint16_t)kind, .flags = (uint16_t)flags,
                               .pid = (uint32_t)getpid(), .tid = (uint32_t)syscall(SYS_gettid), .a = a, .b = b, .c = c,
                               .path_size = (uint32_t)path_size, .data_size = (uint32_t)data_size };
    memcpy((char*)(record + 1), path, path_size);
    if (data_size)
        memcpy((char*)(record + 1) + path_size, data, data_size);
    atomic_store(&header->next, place + size);
    return place;
}

/* For recorder.py: a note of its own. */
uint64_t power_mark(struct header* header, int64_t what, const char* text) {
    power_lock(header);
    uint64_t place = append_record(header, MARK, 0, what, 0, 0, text, NULL, 0);
    power_unlock(header);
    return place;
}

__attribute__((constructor(65535))) static void begin(void) {
    const char* name = getenv("POWER_TRACE");
    const char* below = getenv("POWER_ROOT");
    if (name == NULL || below == NULL)
        return;
    int fd = real_open64(name, O_RDWR | O_CLOEXEC);
    struct stat found;
    if (fd < 0 || fstat(fd, &found) != 0) {
        fprintf(stderr, "recorder: %s cannot be opened\n", name);
        abort();
    }
    void* address = real_mmap64(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    real_close(fd);
    if (address == MAP_FAILED || ((struct header*)address)->magic != MAGIC) {
        fprintf(stderr, "recorder: %s is no trace\n", name);
        abort();
    }
    snprintf(root, sizeof root, "%s", below);
    root_size = strlen(root);
    delay_permille = getenv("POWER_DELAY") ? (unsigned)atoi(getenv("POWER_DELAY")) : 0;
    delay_seed = getenv("POWER_SEED") ? strtoull(getenv("POWER_SEED"), NULL, 10) : 1;
    trace = address;
    power_lock(trace);
    append_record(trace, PROCESS, 0, 0, 0, 0, NULL, NULL, 0);
    power_unlock(trace);
}

static uint64_t note(int kind, int flags, int64_t a, int64_t b, int64_t c, const char* path, const void* data,
                     size_t data_size) {
    return append_record(trace, kind, flags, a, b, c, path, data, data_size);
}

/* ---- names and descriptors ---- */
/* The whole path, where it is below the root; else NULL. */
static const char* below_root(int directory, const char* path, char* room) {
    if (trace == NULL || path == NULL)
        return NULL;
    if (path[0] != '/') {
        char link[64];
        if (directory == AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t n = readlink(link, room, PATH_MAX - 1);
        if (n <= 0 || (size_t)n + strlen(path) + 2 > PATH_MAX)
            return NULL;
        snprintf(room + n, PATH_MAX - (size_t)n, "/%s", path);
        path = room;
    }
    return strncmp(path, root, root_size) == 0 && (path[root_size] == '/' || path[root_size] == 0) ? path : NULL;
}

static int is_tracked(int fd) { return trace != NULL && fd >= 0 && fd < DESCRIPTORS_MAX && tracked[fd]; }

static int opened(int directory, const char* path, int flags, mode_t mode) {
    char room[PATH_MAX];
    const char* whole = below_root(directory, path, room);
    if (whole == NULL) {
        int fd = real_openat64(directory, path, flags, mode);
        if (fd >= 0 && fd < DESCRIPTORS_MAX)
            tracked[fd] = 0;
        return fd;
    }
    power_lock(trace);
    int fd = real_openat64(directory, path, flags, mode);
    int error = errno;
    if (fd >= 0) {
        if (fd < DESCRIPTORS_MAX)
            tracked[fd] = 1;
        note(OPEN, 0, fd, flags, 0, whole, NULL, 0);
    }
    power_unlock(trace);
    errno = error;
    return fd;
}

#define MODE(last) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list arguments; \
        va_start(arguments, last); \
        mode = va_arg(arguments, mode_t); \
        va_end(arguments); \
    }

int open64(const char* path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open(const char* path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int openat64(int at, const char* path, int flags, ...) { MODE(flags) return opened(at, path, flags, mode); }
int openat(int at, const char* path, int flags, ...) { MODE(flags) return opened(at, path, flags, mode); }
int __open_2(const char* path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __openat_2(int at, const char* path, int flags) { return opened(at, path, flags, 0); }
int __openat64_2(int at, const char* path, int flags) { return opened(at, path, flags, 0); }
int creat(const char* path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char* path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int close(int fd) {
    if (!is_tracked(fd))
        return real_close(fd);
    power_lock(trace);
    tracked[fd] = 0;
    note(CLOSE, 0, fd, 0, 0, NULL, NULL, 0);
    int result = real_close(fd);
    int error = errno;
    power_unlock(trace);
    errno = error;
    return result;
}

static int copied(int from, int to) {
    if (to >= 0 && to < DESCRIPTORS_MAX && trace != NULL) {
        tracked[to] = (unsigned char)is_tracked(from);
        if (tracked[to])
            note(DUP, 0, from, to, 0, NULL, NULL, 0);
    }
    return to;
}

#define LOCKED(fd, call) \
    if (!is_tracked(fd)) return call; \
    power_lock(trace); \
    int result = copied(fd, call); \
    power_unlock(trace); \
    return result;

int dup(int fd) { LOCKED(fd, real_dup(fd)) }
int dup2(int fd, int to) { LOCKED(fd, real_dup2(fd, to)) }
int dup3(int fd, int to, int flags) { LOCKED(fd, real_dup3(fd, to, flags)) }

static int duplicate(int fd, int command, void* argument) {
    if (!is_tracked(fd) || (command != F_DUPFD && command != F_DUPFD_CLOEXEC))
        return real_fcntl64(fd, command, argument);
    power_lock(trace);
    int result = copied(fd, real_fcntl64(fd, command, argument));
    power_unlock(trace);
    return result;
}

#define WITH_ARGUMENT \
    va_list arguments; \
    va_start(arguments, command); \
    void* argument = va_arg(arguments, void*); \
    va_end(arguments);

int fcntl64(int fd, int command, ...) { WITH_ARGUMENT return duplicate(fd, command, argument); }
int fcntl(int fd, int command, ...) { WITH_ARGUMENT return duplicate(fd, command, argument); }

/* ---- sockets ---- */
/* The kernel's number of a socket, which no other one ever has: a descriptor's and a port's are used again. */
static int64_t number_of(int fd) {
    uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? (int64_t)cookie : -1 - (int64_t)fd;
}

/* The socket's number, or 0 where nothing was noted: not recording, or the peer is gone and has no address. */
static int64_t note_send(int fd, const struct iovec* parts, int count, size_t extra) {
    struct sockaddr_in6 peer;
    socklen_t peer_size = sizeof peer;
    unsigned char kept[SEND_KEPT_MAX];
    size_t size = 0, total = extra;
    if (trace == NULL || getpeername(fd, (struct sockaddr*)&peer, &peer_size) != 0)
        return 0;
    int64_t number = number_of(fd);
    for (int i = 0; i < count; i++) {
        size_t n = parts[i].iov_len < sizeof kept - size ? parts[i].iov_len : sizeof kept - size;
        memcpy(kept + size, parts[i].iov_base, n);
        size += n;
        total += parts[i].iov_len;
    }
    power_lock(trace);
    note(SEND, 0, number, ntohs(((struct sockaddr_in*)&peer)->sin_port), (int64_t)total, NULL, kept, size);
    power_unlock(trace);
    return number;
}

/* How much was sent in truth, where it was less than what was noted: the rest comes again in a record of its own. */
static ssize_t sent(int64_t number, size_t wanted, ssize_t result) {
    if (number != 0 && result != (ssize_t)wanted) {
        int error = errno;
        power_lock(trace);
        note(SEND, FLAG_FAILED, number, 0, (int64_t)(wanted - (size_t)(result < 0 ? 0 : result)), NULL, NULL, 0);
        power_unlock(trace);
        errno = error;
    }
    return result;
}

ssize_t send(int fd, const void* data, size_t size, int flags) {
    struct iovec part = { (void*)data, size };
    int64_t number = note_send(fd, &part, 1, 0);
    return sent(number, size, real_send(fd, data, size, flags));
}

ssize_t sendto(int fd, const void* data, size_t size, int flags, const struct sockaddr* to, socklen_t to_size) {
    struct iovec part = { (void*)data, size };
    int64_t number = note_send(fd, &part, 1, 0);
    return sent(number, size, real_sendto(fd, data, size, flags, to, to_size));
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
    size_t size = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        size += message->msg_iov[i].iov_len;
    int64_t number = note_send(fd, message->msg_iov, (int)message->msg_iovlen, 0);
    return sent(number, size, real_sendmsg(fd, message, flags));
}

static int is_socket(int fd) {
    struct stat found;
    return trace != NULL && fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode);
}

/* ---- writing ---- */
static int all_zeros(const unsigned char* data, size_t size) {
    return size > 0 && data[0] == 0 && memcmp(data, data + 1, size - 1) == 0;
}

static void note_write(int fd, off_t position, const struct iovec* parts, int count, size_t done) {
    for (int i = 0; i < count && done > 0; i++) {
        size_t n = parts[i].iov_len < done ? parts[i].iov_len : done;
        int zeros = all_zeros(parts[i].iov_base, n);
        note(WRITE, zeros ? FLAG_ZEROS : 0, fd, position, (int64_t)n, NULL, parts[i].iov_base, zeros ? 0 : n);
        position += (off_t)n;
        done -= n;
    }
}

/* Where a write without a position went, after it was made. */
static off_t place_of(int fd, ssize_t done) { return lseek64(fd, 0, SEEK_CUR) - (off_t)done; }

#define WRITING(fd, call, position, parts, count) \
    power_lock(trace); \
    ssize_t result = call; \
    int error = errno; \
    if (result > 0) \
        note_write(fd, position, parts, count, (size_t)result); \
    power_unlock(trace); \
    errno = error; \
    return result;

ssize_t write(int fd, const void* data, size_t size) {
    struct iovec part = { (void*)data, size };
    if (!is_tracked(fd)) {
        if (!is_socket(fd))
            return real_write(fd, data, size);
        int64_t number = note_send(fd, &part, 1, 0);
        return sent(number, size, real_write(fd, data, size));
    }
    WRITING(fd, real_write(fd, data, size), place_of(fd, result), &part, 1)
}

ssize_t writev(int fd, const struct iovec* parts, int count) {
    if (!is_tracked(fd)) {
        size_t size = 0;
        if (!is_socket(fd))
            return real_writev(fd, parts, count);
        for (int i = 0; i < count; i++)
            size += parts[i].iov_len;
        int64_t number = note_send(fd, parts, count, 0);
        return sent(number, size, real_writev(fd, parts, count));
    }
    WRITING(fd, real_writev(fd, parts, count), place_of(fd, result), parts, count)
}

ssize_t pwrite64(int fd, const void* data, size_t size, off_t position) {
    struct iovec part = { (void*)data, size };
    if (!is_tracked(fd))
        return real_pwrite64(fd, data, size, position);
    WRITING(fd, real_pwrite64(fd, data, size, position), position, &part, 1)
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t position) { return pwrite64(fd, data, size, position); }

ssize_t pwritev64(int fd, const struct iovec* parts, int count, off_t position) {
    if (!is_tracked(fd))
        return real_pwritev64(fd, parts, count, position);
    WRITING(fd, real_pwritev64(fd, parts, count, position), position, parts, count)
}

ssize_t pwritev(int fd, const struct iovec* parts, int count, off_t position) {
    return pwritev64(fd, parts, count, position);
}

ssize_t pwritev64v2(int fd, const struct iovec* parts, int count, off_t position, int flags) {
    if (!is_tracked(fd))
        return real_pwritev64v2(fd, parts, count, position, flags);
    WRITING(fd, real_pwritev64v2(fd, parts, count, position, flags),
            position < 0 ? place_of(fd, result) : position, parts, count)
}

ssize_t pwritev2(int fd, const struct iovec* parts, int count, off_t position, int flags) {
    return pwritev64v2(fd, parts, count, position, flags);
}

/* What another file's bytes became in this one: read back, as they never passed through here. */
static void note_copy(int fd, off_t position, ssize_t size) {
    unsigned char piece[65536];
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int readable = real_open64(name, O_RDONLY | O_CLOEXEC);
    while (size > 0) {
        ssize_t n = pread64(readable, piece, size < (ssize_t)sizeof piece ? (size_t)size : sizeof piece, position);
        if (n <= 0)
            break;
        struct iovec part = { piece, (size_t)n };
        note_write(fd, position, &part, 1, (size_t)n);
        position += n;
        size -= n;
    }
    real_close(readable);
}

ssize_t copy_file_range(int in, off64_t* in_place, int out, off64_t* out_place, size_t size, unsigned flags) {
    if (!is_tracked(out))
        return real_copy_file_range(in, in_place, out, out_place, size, flags);
    power_lock(trace);
    ssize_t result = real_copy_file_range(in, in_place, out, out_place, size, flags);
    int error = errno;
    if (result > 0)
        note_copy(out, out_place ? *out_place - result : place_of(out, result), result);
    power_unlock(trace);
    errno = error;
    return result;
}

ssize_t sendfile64(int out, int in, off64_t* place, size_t size) {
    if (is_tracked(out)) {
        power_lock(trace);
        ssize_t result = real_sendfile64(out, in, place, size);
        int error = errno;
        if (result > 0)
            note_copy(out, place_of(out, result), result);
        power_unlock(trace);
        errno = error;
        return result;
    }
    int64_t number = note_send(out, NULL, 0, size);
    return sent(number, size, real_sendfile64(out, in, place, size));
}

ssize_t sendfile(int out, int in, off_t* place, size_t size) { return sendfile64(out, in, place, size); }

/* ---- sizes ---- */
#define CHANGING(condition, call, ...) \
    if (!(condition)) return call; \
    power_lock(trace); \
    int result = call; \
    int error = errno; \
    if (result == 0) note(__VA_ARGS__); \
    power_unlock(trace); \
    errno = error; \
    return result;

int ftruncate64(int fd, off_t size) {
    CHANGING(is_tracked(fd), real_ftruncate64(fd, size), TRUNCATE, 0, fd, size, 0, NULL, NULL, 0)
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int truncate64(const char* path, off_t size) {
    char room[PATH_MAX];
    const char* whole = below_root(AT_FDCWD, path, room);
    CHANGING(whole != NULL, real_truncate64(path, size), TRUNCATE_PATH, 0, -1, size, 0, whole, NULL, 0)
}
int truncate(const char* path, off_t size) { return truncate64(path, size); }

int fallocate64(int fd, int mode, off_t position, off_t size) {
    CHANGING(is_tracked(fd), real_fallocate64(fd, mode, position, size), ALLOCATE, mode, fd, position, size, NULL,
             NULL, 0)
}
int fallocate(int fd, int mode, off_t position, off_t size) { return fallocate64(fd, mode, position, size); }

int posix_fallocate64(int fd, off_t position, off_t size) {
    CHANGING(is_tracked(fd), real_posix_fallocate64(fd, position, size), ALLOCATE, 0, fd, position, size, NULL, NULL,
             0)
}
int posix_fallocate(int fd, off_t position, off_t size) { return posix_fallocate64(fd, position, size); }

/* ---- names ---- */
int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) {
    char from_room[PATH_MAX], to_room[PATH_MAX];
    const char* whole_from = below_root(from_at, from, from_room);
    const char* whole_to = below_root(to_at, to, to_room);
    CHANGING(whole_from != NULL || whole_to != NULL, real_renameat2(from_at, from, to_at, to, flags), RENAME, 0,
             (int64_t)flags, 0, 0, whole_from ? whole_from : "", whole_to ? whole_to : "",
             whole_to ? strlen(whole_to) : 0)
}
int renameat(int from_at, const char* from, int to_at, const char* to) { return renameat2(from_at, from, to_at, to, 0); }
int rename(const char* from, const char* to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int at, const char* path, int flags) {
    char room[PATH_MAX];
    const char* whole = below_root(at, path, room);
    CHANGING(whole != NULL, real_unlinkat(at, path, flags), flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, 0, 0, whole,
             NULL, 0)
}
int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) {
    struct stat found;
    return unlinkat(AT_FDCWD, path, lstat(path, &found) == 0 && S_ISDIR(found.st_mode) ? AT_REMOVEDIR : 0);
}

int mkdirat(int at, const char* path, mode_t mode) {
    char room[PATH_MAX];
    const char* whole = below_root(at, path, room);
    CHANGING(whole != NULL, real_mkdirat(at, path, mode), MKDIR, 0, 0, 0, 0, whole, NULL, 0)
}
int mkdir(const char* path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int linkat(int from_at, const char* from, int to_at, const char* to, int flags) {
    char from_room[PATH_MAX], to_room[PATH_MAX];
    const char* whole_from = below_root(from_at, from, from_room);
    const char* whole_to = below_root(to_at, to, to_room);
    CHANGING(whole_to != NULL, real_linkat(from_at, from, to_at, to, flags), LINK, 0, 0, 0, 0,
             whole_from ? whole_from : "", whole_to, strlen(whole_to))
}
int link(const char* from, const char* to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int symlinkat(const char* target, int at, const char* path) {
    char room[PATH_MAX];
    const char* whole = below_root(at, path, room);
    CHANGING(whole != NULL, real_symlinkat(target, at, path), SYMLINK, 0, 0, 0, 0, whole, target, strlen(target))
}
int symlink(const char* target, const char* path) { return symlinkat(target, AT_FDCWD, path); }

/* ---- syncs ---- */
static unsigned next_random(void) {
    static _Thread_local uint64_t state;
    if (state == 0)
        state = delay_seed * 0x9e3779b97f4a7c15ULL + atomic_fetch_add(&thread_count, 1) * 0xbf58476d1ce4e5b9ULL + 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33);
}

static void linger(int what) {
    if (next_random() % 1000 >= delay_permille)
        return;
    long ms = what == SYNCFS || what == SYNC_ALL ? 48 : next_random() % 12 == 0 ? 32 : 8;
    struct timespec pause = { 0, ms * 1000000 };
    nanosleep(&pause, NULL);
}

#define SYNCING(condition, fd, what, call) \
    if (!(condition)) return call; \
    power_lock(trace); \
    uint64_t began = note(SYNC_BEGIN, 0, fd, what, 0, NULL, NULL, 0); \
    power_unlock(trace); \
    linger(what); \
    int result = call; \
    int error = errno; \
    power_lock(trace); \
    note(SYNC_END, result == 0 ? 0 : FLAG_FAILED, fd, what, (int64_t)began, NULL, NULL, 0); \
    power_unlock(trace); \
    errno = error; \
    return result;

static int whole_sync(void) {
    real_sync();
    return 0;
}

static int sync_all(void) { SYNCING(trace != NULL, -1, SYNC_ALL, whole_sync()) }

int fsync(int fd) { SYNCING(is_tracked(fd), fd, FSYNC, real_fsync(fd)) }
int fdatasync(int fd) { SYNCING(is_tracked(fd), fd, FDATASYNC, real_fdatasync(fd)) }
int syncfs(int fd) { SYNCING(is_tracked(fd), fd, SYNCFS, real_syncfs(fd)) }
void sync(void) { sync_all(); }

/* It starts writing and promises nothing: recorded, so that the trace is whole, and no sync to the model. */
int sync_file_range(int fd, off64_t position, off64_t size, unsigned flags) {
    if (!is_tracked(fd))
        return real_sync_file_range(fd, position, size, flags);
    power_lock(trace);
    note(SYNC_BEGIN, 0, fd, SYNC_RANGE, 0, NULL, NULL, 0);
    power_unlock(trace);
    return real_sync_file_range(fd, position, size, flags);
}

/* Stores through a map cannot be seen here: a broker that made one would have to be recorded in another way. */
void* mmap64(void* address, size_t size, int protection, int flags, int fd, off_t position) {
    if (is_tracked(fd) && (protection & PROT_WRITE) && (flags & MAP_SHARED)) {
        power_lock(trace);
        note(UNSUPPORTED, 0, fd, 0, 0, "mmap", NULL, 0);
        power_unlock(trace);
    }
    return real_mmap64(address, size, protection, flags, fd, position);
}

void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t position) {
    return mmap64(address, size, protection, flags, fd, position);
}
