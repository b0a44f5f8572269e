/* Preloaded: lets the n-th call that changes the file system fail as on a full disk, or sends signals there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

static long at = -1, calls = 0;
static int number = 0;

/* From now on the n-th such call fails with ENOSPC, or, for a signal, sends that three times. */
void faults_arm(long n, int signal_number) { calls = 0; at = n; number = signal_number; }
long faults_calls(void) { return calls; }

static int strikes(void) {
    if (at < 0 || __sync_add_and_fetch(&calls, 1) != at) return 0;
    if (number) { for (int i = 0; i < 3; i++) kill(getpid(), number); return 0; }
    errno = ENOSPC;
    return 1;
}

static int regular(int fd) { struct stat s; return fd > 2 && !fstat(fd, &s) && S_ISREG(s.st_mode); }

#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    return regular(fd) && strikes() ? -1 : real(fd, data, size);
}
int fsync(int fd) { REAL(fsync); return strikes() ? -1 : real(fd); }
int rename(const char *from, const char *to) { REAL(rename); return strikes() ? -1 : real(from, to); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); return strikes() ? -1 : real(path, mode); }

#define OPEN(name)                                                                   \
    int name(const char *path, int flags, ...) {                                     \
        REAL(name);                                                                  \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        return (flags & O_CREAT) && strikes() ? -1 : real(path, flags, mode);        \
    }
OPEN(open)
OPEN(open64)
