/* Fails or kills the process at the n-th call that changes files below a directory.
 *
 * Loaded with LD_PRELOAD and switched on from Python (shim.py), so that one warm process can be
 * forked for every fault:
 *
 *     faults_arm(directory, n, action, error)   the n-th call from now on, 1 the first; 0: count only
 *     faults_seen()                             how many such calls there were
 *
 * Only functions of libc are replaced: what a program does with system calls of its own is not
 * seen. Calls of all threads are counted together, in the order in which they happen to come.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum action { FAIL_ONCE, FAIL_FROM_THEN_ON, SHORT_THEN_FAIL, KILL };
/* What a call needs: with no space left, names can still be removed and files be flushed. */
enum need { SPACE, NO_SPACE };

static char root[PATH_MAX];
static size_t root_length;
static atomic_int armed;
static atomic_long seen;
static long target;
static enum action action;
static int injected_error;

void faults_arm(const char *directory, long n, int what, int error) {
    atomic_store(&armed, 0);
    snprintf(root, sizeof root, "%s", directory);
    root_length = strlen(root);
    target = n;
    action = (enum action)what;
    injected_error = error;
    atomic_store(&seen, 0);
    atomic_store(&armed, 1);
}

long faults_seen(void) { return atomic_load(&seen); }

static int below_root(const char *path) {
    return strncmp(path, root, root_length) == 0
        && (path[root_length] == '/' || path[root_length] == '\0');
}

static int is_watched_handle(int handle) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = '\0';
    return below_root(path);
}

static int is_watched_path(int directory, const char *path) {
    char whole[PATH_MAX], link[64];
    if (path == NULL) return 0;
    if (path[0] == '/') return below_root(path);
    if (directory != AT_FDCWD) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t n = readlink(link, whole, sizeof whole - 1);
        if (n < 0) return 0;
        whole[n] = '\0';
    } else if (getcwd(whole, sizeof whole) == NULL) {
        return 0;
    }
    size_t n = strlen(whole);
    snprintf(whole + n, sizeof whole - n, "/%s", path);
    return below_root(whole);
}

/* Counts a call. 0: let it pass; 1: fail with errno set; 2: let half of it pass. */
static int count(enum need need) {
    long number = atomic_fetch_add(&seen, 1) + 1;
    if (target == 0 || number < target) return 0;
    if (number > target && (action == FAIL_ONCE || need == NO_SPACE)) return 0;
    if (action == KILL) {
        syscall(SYS_kill, getpid(), SIGKILL);
        for (;;) pause();
    }
    if (action == SHORT_THEN_FAIL && number == target) return 2;
    errno = injected_error;
    return 1;
}

#define ON_HANDLE(handle, need) \
    (atomic_load(&armed) && is_watched_handle(handle) ? count(need) : 0)
#define ON_PATH(directory, path, need) \
    (atomic_load(&armed) && is_watched_path(directory, path) ? count(need) : 0)
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define HALF(n) ((n) > 1 ? (n) / 2 : (n))

/* --- writing ----------------------------------------------------------------------------------*/

ssize_t write(int handle, const void *data, size_t n) {
    int fault = ON_HANDLE(handle, SPACE);
    if (fault == 1) return -1;
    return REAL(write)(handle, data, fault == 2 ? HALF(n) : n);
}

ssize_t pwrite(int handle, const void *data, size_t n, off_t at) {
    int fault = ON_HANDLE(handle, SPACE);
    if (fault == 1) return -1;
    return REAL(pwrite)(handle, data, fault == 2 ? HALF(n) : n, at);
}

ssize_t pwrite64(int handle, const void *data, size_t n, off64_t at) {
    int fault = ON_HANDLE(handle, SPACE);
    if (fault == 1) return -1;
    return REAL(pwrite64)(handle, data, fault == 2 ? HALF(n) : n, at);
}

ssize_t writev(int handle, const struct iovec *parts, int n) {
    int fault = ON_HANDLE(handle, SPACE);
    if (fault == 1) return -1;
    if (fault == 2 && n > 0) return REAL(write)(handle, parts[0].iov_base, HALF(parts[0].iov_len));
    return REAL(writev)(handle, parts, n);
}

ssize_t pwritev(int handle, const struct iovec *parts, int n, off_t at) {
    if (ON_HANDLE(handle, SPACE) == 1) return -1;
    return REAL(pwritev)(handle, parts, n, at);
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags) {
    int fault = ON_HANDLE(out, SPACE);
    if (fault == 1) return -1;
    return REAL(copy_file_range)(in, from, out, to, fault == 2 ? HALF(n) : n, flags);
}

ssize_t sendfile(int out, int in, off_t *from, size_t n) {
    int fault = ON_HANDLE(out, SPACE);
    if (fault == 1) return -1;
    ssize_t (*real)(int, int, off_t *, size_t) = dlsym(RTLD_NEXT, "sendfile");
    return real(out, in, from, fault == 2 ? HALF(n) : n);
}

ssize_t sendfile64(int out, int in, off64_t *from, size_t n) {
    int fault = ON_HANDLE(out, SPACE);
    if (fault == 1) return -1;
    ssize_t (*real)(int, int, off64_t *, size_t) = dlsym(RTLD_NEXT, "sendfile64");
    return real(out, in, from, fault == 2 ? HALF(n) : n);
}

#define ON_LENGTH(name, parameters, arguments) \
    int name parameters { \
        if (ON_HANDLE(handle, SPACE) == 1) return -1; \
        return REAL(name) arguments; \
    }
ON_LENGTH(ftruncate, (int handle, off_t size), (handle, size))
ON_LENGTH(ftruncate64, (int handle, off64_t size), (handle, size))
ON_LENGTH(fallocate, (int handle, int mode, off_t at, off_t n), (handle, mode, at, n))
ON_LENGTH(fallocate64, (int handle, int mode, off64_t at, off64_t n), (handle, mode, at, n))

int posix_fallocate(int handle, off_t at, off_t n) {
    /* Returns its error. */
    if (ON_HANDLE(handle, SPACE) == 1) return errno;
    return REAL(posix_fallocate)(handle, at, n);
}

/* --- flushing ---------------------------------------------------------------------------------*/

int fsync(int handle) {
    return ON_HANDLE(handle, NO_SPACE) == 1 ? -1 : REAL(fsync)(handle);
}

int fdatasync(int handle) {
    return ON_HANDLE(handle, NO_SPACE) == 1 ? -1 : REAL(fdatasync)(handle);
}

/* --- opening ----------------------------------------------------------------------------------*/

static int opens_for_writing(int flags) {
    return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
}

static mode_t mode_of(int flags, va_list list) {
    return (flags & (O_CREAT | O_TMPFILE)) ? (mode_t)va_arg(list, int) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list list; \
        va_start(list, flags); \
        mode_t mode = mode_of(flags, list); \
        va_end(list); \
        if (opens_for_writing(flags) && ON_PATH(AT_FDCWD, path, SPACE) == 1) return -1; \
        return REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        va_list list; \
        va_start(list, flags); \
        mode_t mode = mode_of(flags, list); \
        va_end(list); \
        if (opens_for_writing(flags) && ON_PATH(directory, path, SPACE) == 1) return -1; \
        return REAL(name)(directory, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define CREAT(name) \
    int name(const char *path, mode_t mode) { \
        return ON_PATH(AT_FDCWD, path, SPACE) == 1 ? -1 : REAL(name)(path, mode); \
    }
CREAT(creat)
CREAT(creat64)
CREAT(mkdir)

#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        if (strpbrk(mode, "wa+") && ON_PATH(AT_FDCWD, path, SPACE) == 1) return NULL; \
        return REAL(name)(path, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

int mkdirat(int directory, const char *path, mode_t mode) {
    return ON_PATH(directory, path, SPACE) == 1 ? -1 : REAL(mkdirat)(directory, path, mode);
}

/* --- names ------------------------------------------------------------------------------------*/

int rename(const char *from, const char *to) {
    return ON_PATH(AT_FDCWD, to, NO_SPACE) == 1 ? -1 : REAL(rename)(from, to);
}

int renameat(int old, const char *from, int new, const char *to) {
    return ON_PATH(new, to, NO_SPACE) == 1 ? -1 : REAL(renameat)(old, from, new, to);
}

int renameat2(int old, const char *from, int new, const char *to, unsigned flags) {
    return ON_PATH(new, to, NO_SPACE) == 1 ? -1 : REAL(renameat2)(old, from, new, to, flags);
}

int link(const char *from, const char *to) {
    return ON_PATH(AT_FDCWD, to, NO_SPACE) == 1 ? -1 : REAL(link)(from, to);
}

int symlink(const char *from, const char *to) {
    return ON_PATH(AT_FDCWD, to, SPACE) == 1 ? -1 : REAL(symlink)(from, to);
}

int unlink(const char *path) {
    return ON_PATH(AT_FDCWD, path, NO_SPACE) == 1 ? -1 : REAL(unlink)(path);
}

int unlinkat(int directory, const char *path, int flags) {
    return ON_PATH(directory, path, NO_SPACE) == 1 ? -1 : REAL(unlinkat)(directory, path, flags);
}

int rmdir(const char *path) {
    return ON_PATH(AT_FDCWD, path, NO_SPACE) == 1 ? -1 : REAL(rmdir)(path);
}

int remove(const char *path) {
    return ON_PATH(AT_FDCWD, path, NO_SPACE) == 1 ? -1 : REAL(remove)(path);
}
