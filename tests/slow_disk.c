/* For LD_PRELOAD: a disk that syncs nothing as long as the file named by SLOW_DISK is there. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

extern long syscall(long number, ...);

static void wait_for_the_disk(void) {
    const char *path = getenv("SLOW_DISK");
    while (path && access(path, F_OK) == 0) usleep(5000);
}

int fdatasync(int fd) {
    wait_for_the_disk();
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
    wait_for_the_disk();
    return (int)syscall(SYS_fsync, fd);
}
