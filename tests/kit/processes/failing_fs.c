/* A file system that passes everything to a directory and answers EIO for chosen ranges of chosen files: a bad disk.
 *
 *   failing_fs DIRECTORY MOUNTPOINT
 *
 * Commands on standard input, one a line, each answered by "ok" on standard output when it holds:
 *
 *   fail PATH START END     reads of bytes [START, END) of PATH (as the mount names it, from "/") fail from now on
 *   heal                    no read fails any more
 *
 * Each drops what the system has cached of the file, so that maps of it are read anew. Needs libfuse 3.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { RULES_MAX = 64 };

struct rule {
    char path[PATH_MAX];
    long long start, end;
};

static char root[PATH_MAX];
static struct rule rules[RULES_MAX];
static int rule_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *under(char *out, const char *path)
{
    snprintf(out, PATH_MAX, "%s%s", root, path);
    return out;
}

#define REAL(path) under((char[PATH_MAX]){0}, path)
#define RESULT(call) ((call) < 0 ? -errno : 0)

static int fails(const char *path, long long start, long long end)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < rule_count; i++)
        found |= start < rules[i].end && end > rules[i].start && strcmp(rules[i].path, path) == 0;
    pthread_mutex_unlock(&lock);
    return found;
}

static int on_getattr(const char *path, struct stat *out, struct fuse_file_info *file)
{
    return RESULT(file ? fstat((int)file->fh, out) : lstat(REAL(path), out));
}

static int on_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *file,
                      enum fuse_readdir_flags flags)
{
    DIR *directory = opendir(REAL(path));
    struct dirent *entry;
    (void)offset, (void)file, (void)flags;
    if (directory == NULL)
        return -errno;
    while ((entry = readdir(directory)) != NULL)
        if (fill(buffer, entry->d_name, NULL, 0, 0))
            break;
    closedir(directory);
    return 0;
}

static int on_mkdir(const char *path, mode_t mode) { return RESULT(mkdir(REAL(path), mode)); }
static int on_unlink(const char *path) { return RESULT(unlink(REAL(path))); }
static int on_rmdir(const char *path) { return RESULT(rmdir(REAL(path))); }
static int on_chmod(const char *path, mode_t mode, struct fuse_file_info *file)
{
    (void)file;
    return RESULT(chmod(REAL(path), mode));
}

static int on_rename(const char *from, const char *to, unsigned int flags)
{
    return RESULT(renameat2(AT_FDCWD, REAL(from), AT_FDCWD, REAL(to), flags));
}

static int on_truncate(const char *path, off_t size, struct fuse_file_info *file)
{
    return RESULT(file ? ftruncate((int)file->fh, size) : truncate(REAL(path), size));
}

static int on_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *file)
{
    (void)file;
    return RESULT(utimensat(AT_FDCWD, REAL(path), times, AT_SYMLINK_NOFOLLOW));
}

static int on_open(const char *path, struct fuse_file_info *file)
{
    int fd = open(REAL(path), file->flags & ~O_NOFOLLOW);
    file->fh = (uint64_t)fd;
    file->keep_cache = 1;
    return RESULT(fd);
}

static int on_create(const char *path, mode_t mode, struct fuse_file_info *file)
{
    int fd = open(REAL(path), file->flags, mode);
    file->fh = (uint64_t)fd;
    file->keep_cache = 1;
    return RESULT(fd);
}

static int on_read(const char *path, char *buffer, size_t size, off_t offset, struct fuse_file_info *file)
{
    ssize_t n;
    if (fails(path, offset, offset + (long long)size))
        return -EIO;
    n = pread((int)file->fh, buffer, size, offset);
    return n < 0 ? -errno : (int)n;
}

static int on_write(const char *path, const char *buffer, size_t size, off_t offset, struct fuse_file_info *file)
{
    ssize_t n = pwrite((int)file->fh, buffer, size, offset);
    (void)path;
    return n < 0 ? -errno : (int)n;
}

static int on_release(const char *path, struct fuse_file_info *file)
{
    (void)path;
    return RESULT(close((int)file->fh));
}

static int on_fsync(const char *path, int data_only, struct fuse_file_info *file)
{
    (void)path;
    return RESULT(data_only ? fdatasync((int)file->fh) : fsync((int)file->fh));
}

static int on_fallocate(const char *path, int mode, off_t offset, off_t size, struct fuse_file_info *file)
{
    (void)path;
    return RESULT(fallocate((int)file->fh, mode, offset, size));
}

static int on_statfs(const char *path, struct statvfs *out) { return RESULT(statvfs(REAL(path), out)); }

static void *follow_commands(void *argument)
{
    struct fuse *fuse = argument;
    char line[PATH_MAX + 64];
    struct rule rule;
    while (fgets(line, sizeof line, stdin) != NULL) {
        int count;
        pthread_mutex_lock(&lock);
        count = rule_count;
        if (strncmp(line, "heal", 4) == 0)
            rule_count = 0;
        else if (rule_count < RULES_MAX && sscanf(line, "fail %4095s %lld %lld", rule.path, &rule.start, &rule.end) == 3)
            rules[rule_count++] = rule;
        pthread_mutex_unlock(&lock);
        for (int i = 0; i < (count > rule_count ? count : rule_count); i++)
            fuse_invalidate_path(fuse, rules[i].path);
        puts("ok");
        fflush(stdout);
    }
    return NULL;
}

static void *on_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    pthread_t thread;
    (void)connection;
    config->use_ino = 1;
    config->nullpath_ok = 0;
    pthread_create(&thread, NULL, follow_commands, fuse_get_context()->fuse);
    puts("mounted");
    fflush(stdout);
    return NULL;
}

static const struct fuse_operations operations = {
    .init = on_init,
    .getattr = on_getattr,
    .readdir = on_readdir,
    .mkdir = on_mkdir,
    .unlink = on_unlink,
    .rmdir = on_rmdir,
    .chmod = on_chmod,
    .rename = on_rename,
    .truncate = on_truncate,
    .utimens = on_utimens,
    .open = on_open,
    .create = on_create,
    .read = on_read,
    .write = on_write,
    .release = on_release,
    .fsync = on_fsync,
    .fallocate = on_fallocate,
    .statfs = on_statfs,
};

int main(int count, char **arguments)
{
    char *options[] = {arguments[0], "-f", NULL, NULL};
    if (count != 3 || realpath(arguments[1], root) == NULL)
        return 2;
    options[2] = arguments[2];
    return fuse_main(3, options, &operations, NULL);
}
