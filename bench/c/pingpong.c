// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Lower bound for a UDP round trip. The benchmark compares dwell with it.
 *
 *   pingpong server ADDRESS PORT [busy]
 *   pingpong client ADDRESS PORT SIZE COUNT [busy] [stamps] [fill=DIGITS]
 *
 * The server echoes until it is killed. The client sends a message of SIZE bytes, waits for its echo and
 * repeats: WARM_UP times unrecorded, then COUNT times recorded. It prints the result as one JSON object
 * in nanoseconds. `busy` polls instead of sleeping in recv(). `stamps` requests software timestamps of
 * every sent and received packet, reads them as they arrive (the transmit timestamp from the error queue
 * after the echo) and keeps all four times of each round trip. `fill` gives the bytes after the number of
 * the message (8 bytes) in hexadecimal digits, for servers that answer their own format only.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#define WARM_UP 1000
#define MAX_SIZE 65507
#define MAX_FILL 64
#define TIMEOUT_NS 1000000000LL

/* All times are nanoseconds of CLOCK_REALTIME; 0 if missing. */
struct round_trip {
	int64_t tx_app;
	int64_t tx_kernel;
	int64_t rx_kernel;
	int64_t rx_app;
};

static bool busy;
static bool stamps;
static unsigned char fill[MAX_FILL];
static size_t fill_len;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t nanos(const struct timespec *t)
{
	return t->tv_sec * 1000000000LL + t->tv_nsec;
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return nanos(&t);
}

static struct sockaddr_in address(const char *host, const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	if (inet_pton(AF_INET, host, &a.sin_addr) != 1) {
		fprintf(stderr, "'%s' is not an IPv4 address\n", host);
		exit(2);
	}
	return a;
}

static _Noreturn void serve(const char *host, const char *port)
{
	static char buffer[MAX_SIZE];
	struct sockaddr_in local = address(host, port);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&local, sizeof(local)))
		die("bind");
	fprintf(stderr, "listening on %s:%s\n", host, port);
	for (;;) {
		struct sockaddr_in from;
		socklen_t from_len = sizeof(from);
		ssize_t n = recvfrom(fd, buffer, sizeof(buffer), busy ? MSG_DONTWAIT : 0,
				     (struct sockaddr *)&from, &from_len);

		if (n >= 0)
			sendto(fd, buffer, n, 0, (struct sockaddr *)&from, from_len);
	}
}

/* Returns the first software timestamp in the control messages of `msg`, or 0. */
static int64_t stamp_of(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPING) {
			struct scm_timestamping t;

			memcpy(&t, CMSG_DATA(c), sizeof(t));
			return nanos(&t.ts[0]);
		}
	}
	return 0;
}

/* Receives once; with `stamps`, stores the packet's timestamp in `stamp`. */
static ssize_t receive(int fd, char *buffer, size_t size, int flags, int64_t *stamp)
{
	union {
		char bytes[512];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = buffer, .iov_len = size };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	if (!stamps)
		return recv(fd, buffer, size, flags);
	n = recvmsg(fd, &msg, flags);
	if (n >= 0)
		*stamp = stamp_of(&msg);
	return n;
}

/* Sends message `id` and waits for its echo; returns false on a time-out. */
static bool cycle(int fd, char *buffer, size_t size, uint64_t id, struct round_trip *r)
{
	uint64_t echoed;
	unsigned int spins = 0;

	memcpy(buffer, &id, sizeof(id));
	memcpy(buffer + sizeof(id), fill, fill_len);
	r->tx_app = now();
	if (send(fd, buffer, size, 0) < 0)
		return false;
	for (;;) {
		ssize_t n = receive(fd, buffer, size, busy ? MSG_DONTWAIT : 0, &r->rx_kernel);

		if (n >= (ssize_t)sizeof(echoed)) {
			r->rx_app = now();
			memcpy(&echoed, buffer, sizeof(echoed));
			if (echoed == id)
				break;
		} else if (!busy || (++spins % 1024 == 0 && now() - r->tx_app > TIMEOUT_NS)) {
			return false;
		}
	}
	if (stamps) {
		char none;

		receive(fd, &none, 0, MSG_ERRQUEUE | MSG_DONTWAIT, &r->tx_kernel);
	}
	return true;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Nearest rank: the smallest sample that at least `per_mille` of the samples do not exceed. */
static int64_t percentile(const int64_t *sorted, size_t n, size_t per_mille)
{
	size_t rank = (n * per_mille + 999) / 1000;

	return sorted[rank ? rank - 1 : 0];
}

static int measure(const char *host, const char *port, size_t size, size_t count)
{
	static char buffer[MAX_SIZE];
	struct sockaddr_in remote = address(host, port);
	struct timeval timeout = { .tv_sec = TIMEOUT_NS / 1000000000LL };
	int flags = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_TX_SOFTWARE |
		    SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID |
		    SOF_TIMESTAMPING_OPT_TSONLY;
	struct round_trip *all = calloc(count, sizeof(*all)), scratch;
	int64_t *sorted = calloc(count, sizeof(*sorted));
	size_t received = 0, stamped = 0;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (!all || !sorted)
		die("calloc");
	if (fd < 0 || connect(fd, (struct sockaddr *)&remote, sizeof(remote)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)))
		die("socket");
	if (stamps && setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags)))
		die("SO_TIMESTAMPING");

	for (size_t i = 0; i < WARM_UP; i++)
		cycle(fd, buffer, size, i, &scratch);
	for (size_t i = 0; i < count; i++)
		if (cycle(fd, buffer, size, WARM_UP + i, &all[received]))
			received++;

	if (!received) {
		fprintf(stderr, "no echo from %s:%s\n", host, port);
		return 1;
	}
	for (size_t i = 0; i < received; i++) {
		sorted[i] = all[i].rx_app - all[i].tx_app;
		stamped += all[i].tx_kernel != 0 && all[i].rx_kernel != 0;
	}
	qsort(sorted, received, sizeof(*sorted), by_value);
	printf("{\"count\":%zu,\"stamped\":%zu,\"min\":%" PRId64 ",\"p50\":%" PRId64
	       ",\"p99\":%" PRId64 ",\"p99_9\":%" PRId64 ",\"max\":%" PRId64 "}\n",
	       received, stamped, sorted[0], percentile(sorted, received, 500),
	       percentile(sorted, received, 990), percentile(sorted, received, 999),
	       sorted[received - 1]);
	return 0;
}

static void parse_fill(const char *digits)
{
	for (; fill_len < MAX_FILL && sscanf(digits, "%2hhx", &fill[fill_len]) == 1; digits += 2)
		fill_len++;
}

int main(int argc, char **argv)
{
	for (int i = 4; i < argc; i++) {
		busy |= !strcmp(argv[i], "busy");
		stamps |= !strcmp(argv[i], "stamps");
		if (!strncmp(argv[i], "fill=", 5))
			parse_fill(argv[i] + 5);
	}
	if (argc >= 4 && !strcmp(argv[1], "server"))
		serve(argv[2], argv[3]);
	if (argc >= 6 && !strcmp(argv[1], "client")) {
		size_t size = strtoul(argv[4], NULL, 10), count = strtoul(argv[5], NULL, 10);

		if (size >= sizeof(uint64_t) + fill_len && size <= MAX_SIZE && count > 0 && count <= 10000000)
			return measure(argv[2], argv[3], size, count);
	}
	fprintf(stderr, "usage: pingpong server ADDRESS PORT [busy]\n"
			"       pingpong client ADDRESS PORT SIZE COUNT [busy] [stamps] [fill=DIGITS]\n");
	return 2;
}
