// clock: changes the guest's CLOCK_REALTIME, or compares it with the host's through a page of ivshmem.
//   clock step NANOSECONDS    moves the clock
//   clock rate PPM            sets the rate, at most 500 ppm
//   clock compare SECONDS     prints the tightest bounds of guest's time minus host's, and the host's time: LOW HIGH AT;
//                             ends early when they are tight
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timex.h>
#include <time.h>

#define IVSHMEM "0x1af4 0x1110"
#define SECOND 1000000000LL
#define TIGHT_NS 5000

static int64_t now(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static int adjust(struct timex t) {
    if (adjtimex(&t) < 0) {
        perror("clock: adjtimex");
        return 1;
    }
    return 0;
}

static int step(int64_t by) {
    int64_t seconds = by / SECOND, rest = by % SECOND;
    if (rest < 0) {
        seconds -= 1;
        rest += SECOND;
    }
    // With ADJ_NANO, tv_usec holds nanoseconds.
    return adjust((struct timex){.modes = ADJ_SETOFFSET | ADJ_NANO, .time = {seconds, rest}});
}

static int is_ivshmem(const char *device) {
    char path[300], vendor[16] = "", product[16] = "", both[40];
    const char *names[] = {"vendor", "device"};
    char *values[] = {vendor, product};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/%s", device, names[i]);
        FILE *f = fopen(path, "r");
        if (f == NULL || fscanf(f, "%15s", values[i]) != 1)
            return 0;
        fclose(f);
    }
    snprintf(both, sizeof both, "%s %s", vendor, product);
    return strcmp(both, IVSHMEM) == 0;
}

static volatile int64_t *host_page(void) {
    DIR *devices = opendir("/sys/bus/pci/devices");
    for (struct dirent *e; devices != NULL && (e = readdir(devices)) != NULL;) {
        if (e->d_name[0] == '.' || !is_ivshmem(e->d_name))
            continue;
        char path[300];
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/resource2", e->d_name);
        int fd = open(path, O_RDWR);
        void *page = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        if (page != MAP_FAILED)
            return page;
        perror(path);
        return NULL;
    }
    fprintf(stderr, "clock: no ivshmem device\n");
    return NULL;
}

// The host stores its CLOCK_REALTIME in the page again and again. A value is stored after it was read, so the host's
// time at `after` is at least `first`. The host reads `third` after it stored the second value, which it stored after
// `before`, so the host's time at `before` is at most `third`.
static int compare(double seconds) {
    volatile int64_t *page = host_page();
    if (page == NULL)
        return 1;
    int64_t low = 0, high = INT64_MAX, at = 0, end = now(CLOCK_MONOTONIC) + (int64_t)(seconds * SECOND);
    while (now(CLOCK_MONOTONIC) < end && high - low > TIGHT_NS) {
        int64_t before = now(CLOCK_REALTIME), first = *page, after = now(CLOCK_REALTIME), third = first;
        for (int change = 0; change < 2; change++)
            for (int64_t last = third; (third = *page) == last;)
                if (now(CLOCK_MONOTONIC) > end + SECOND) {
                    fprintf(stderr, "clock: the host does not write its time\n");
                    return 1;
                }
        // The first value may be old, and both bounds must be of one moment: the clock's rate may differ.
        if (first > 0 && (after - first) - (before - third) < high - low) {
            low = before - third;
            high = after - first;
            at = first;
        }
    }
    if (high == INT64_MAX) {
        fprintf(stderr, "clock: no value of the host was read within %g s\n", seconds);
        return 1;
    }
    printf("%lld %lld %lld\n", (long long)low, (long long)high, (long long)at);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "step") == 0)
        return step(atoll(argv[2]));
    if (argc == 3 && strcmp(argv[1], "rate") == 0)
        return adjust((struct timex){.modes = ADJ_FREQUENCY, .freq = (long)(atof(argv[2]) * 65536)});
    if (argc == 3 && strcmp(argv[1], "compare") == 0)
        return compare(atof(argv[2]));
    fprintf(stderr, "usage: clock step NANOSECONDS | rate PPM | compare SECONDS\n");
    return 2;
}
