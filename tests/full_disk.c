/* For LD_PRELOAD: a disk that is full as long as the file named by FULL_DISK is there. Only files whose path begins with
   FULL_DISK_UNDER are on it. As on a real one, what a file already has can be written again, and no file can grow. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_full_for(int fd, off_t end) {
    const char *flag = getenv("FULL_DISK"), *under = getenv("FULL_DISK_UNDER");
    char link[64], path[4096];
    struct stat found;
    if (!flag || !under || access(flag, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, under, strlen(under)) != 0) return 0;
    return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && end > found.st_size;
}

static off_t end_of(const struct iovec *parts, int count, off_t offset) {
    for (int i = 0; i < count; i++) offset += (off_t)parts[i].iov_len;
    return offset;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE_IF(full) do { int before = errno; if (full) { errno = ENOSPC; return -1; } errno = before; } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    static __typeof__(&write) next;
    if (!next) next = NEXT(write);
    if (getenv("FULL_DISK")) {
        int before = errno;
        off_t at = lseek(fd, 0, SEEK_CUR);
        errno = before;
        REFUSE_IF(at >= 0 && is_full_for(fd, at + (off_t)size));
    }
    return next(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    static __typeof__(&pwrite) next;
    if (!next) next = NEXT(pwrite);
    REFUSE_IF(is_full_for(fd, offset + (off_t)size));
    return next(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return pwrite(fd, data, size, (off_t)offset); }

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    static __typeof__(&pwritev) next;
    if (!next) next = NEXT(pwritev);
    REFUSE_IF(is_full_for(fd, end_of(parts, count, offset)));
    return next(fd, parts, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return pwritev(fd, parts, count, (off_t)offset);
}

int posix_fallocate(int fd, off_t offset, off_t size) {
    static __typeof__(&posix_fallocate) next;
    if (!next) next = NEXT(posix_fallocate);
    if (is_full_for(fd, offset + size)) return ENOSPC;
    return next(fd, offset, size);
}

int posix_fallocate64(int fd, off64_t offset, off64_t size) { return posix_fallocate(fd, (off_t)offset, (off_t)size); }
