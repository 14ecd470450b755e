/* A disk that fails on command, loaded before the C library (LD_PRELOAD).

   Counts the calls that write to, cut or synchronise a file in FAULT_FOLDER, and from call FAULT_AT on does this:
     FAULT=kill   the process is killed before the call
     FAULT=torn   half of the data is written, then the process is killed
     FAULT=full   FAULT_COUNT calls fail: no space left on device
     FAULT=io     FAULT_COUNT calls fail: input/output error
   After each call that synchronises a file, the file is copied into FAULT_SHADOW: what a loss of power would leave. A
   file that was deleted stays there until the folder is synchronised.
   How many calls there were is written into FAULT_TOTAL at exit. The variables are taken out of the environment, so that
   child processes have a disk that works. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[4096], shadow[4096], total[4096], fault[16];
static long at = -1, count = 1, calls = 0;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take(const char *name, char *into, size_t size) {
    const char *value = getenv(name);
    if (value) snprintf(into, size, "%s", value);
    unsetenv(name);
}

__attribute__((constructor)) static void begin(void) {
    char number[32] = "";
    take("FAULT_FOLDER", folder, sizeof folder);
    take("FAULT_SHADOW", shadow, sizeof shadow);
    take("FAULT_TOTAL", total, sizeof total);
    take("FAULT", fault, sizeof fault);
    take("FAULT_AT", number, sizeof number);
    if (*number) at = atol(number);
    *number = 0;
    take("FAULT_COUNT", number, sizeof number);
    if (*number) count = atol(number);
    unsetenv("LD_PRELOAD");
}

__attribute__((destructor)) static void end(void) {
    if (!*total) return;
    FILE *file = fopen(total, "w");
    if (file) fprintf(file, "%ld", calls), fclose(file);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, 4095);
    if (length < 0 || !*folder) return 0;
    path[length] = 0;
    return !strncmp(path, folder, strlen(folder));
}

/* Return 0 to go on, -1 to fail, 1 to write half and die. */
static int reached(int fd) {
    char path[4096];
    if (!path_of(fd, path)) return 0;
    pthread_mutex_lock(&lock);
    long now = ++calls;
    pthread_mutex_unlock(&lock);
    if (at < 0 || now < at) return 0;
    if (!strcmp(fault, "kill")) kill(getpid(), SIGKILL), pause();
    if (!strcmp(fault, "torn")) return 1;
    if (now >= at + count) return 0;
    errno = !strcmp(fault, "full") ? ENOSPC : EIO;
    return -1;
}

static void forget(void) {
    char path[8400];
    struct dirent *each;
    DIR *kept = opendir(shadow);
    while (kept && (each = readdir(kept))) {
        snprintf(path, sizeof path, "%s/%s", folder, each->d_name);
        if (!access(path, F_OK)) continue;
        snprintf(path, sizeof path, "%s/%s", shadow, each->d_name);
        unlink(path);
    }
    if (kept) closedir(kept);
}

static void keep(int fd) {
    char path[4096], copy[8400], part[8500], data[65536];
    struct stat found;
    if (!*shadow || !path_of(fd, path) || fstat(fd, &found)) return;
    if (S_ISDIR(found.st_mode)) forget();
    if (!S_ISREG(found.st_mode)) return;
    snprintf(copy, sizeof copy, "%s/%s", shadow, strrchr(path, '/') + 1);
    snprintf(part, sizeof part, "%s.part", copy);
    int from = open(path, O_RDONLY), to = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    ssize_t length;
    while ((length = read(from, data, sizeof data)) > 0) real(to, data, length);
    close(from), close(to);
    rename(part, copy);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define CHECK(fd, half) switch (reached(fd)) { case -1: return -1; case 1: half; kill(getpid(), SIGKILL); pause(); }

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    CHECK(fd, real(fd, data, size / 2));
    return real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t where) {
    REAL(pwrite);
    CHECK(fd, real(fd, data, size / 2, where));
    return real(fd, data, size, where);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t where) {
    REAL(pwrite64);
    CHECK(fd, real(fd, data, size / 2, where));
    return real(fd, data, size, where);
}

int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    CHECK(fd, (void)0);
    return real(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    CHECK(fd, (void)0);
    return real(fd, size);
}

int fsync(int fd) {
    REAL(fsync);
    CHECK(fd, (void)0);
    int result = real(fd);
    keep(fd);
    return result;
}

int fdatasync(int fd) {
    REAL(fdatasync);
    CHECK(fd, (void)0);
    int result = real(fd);
    keep(fd);
    return result;
}
