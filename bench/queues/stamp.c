/* A job that costs next to nothing and tells when it ran: `stamp FIFO NUMBER [MILLISECONDS]`.
 *
 * Its first act is to read the clock. It sleeps for the time that is given, reads the clock again, and writes both with
 * its number into the fifo, in one piece. Linked statically, so that no loader runs before its first instruction. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int main(int count, char **words) {
    int64_t record[3];
    record[1] = now();
    if (count < 3) return 2;
    record[0] = atoll(words[2]);
    if (count > 3) usleep(1000 * atoi(words[3]));
    int fd = open(words[1], O_WRONLY);
    if (fd < 0) return 1;
    record[2] = now();
    return write(fd, record, sizeof record) == sizeof record ? 0 : 1;
}
