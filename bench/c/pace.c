// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Lower bound for sending UDP on time. The benchmark compares dwell with it.
 *
 *   pace spin ADDRESS PORT PAYLOAD GAP COUNT
 *   pace sleep ADDRESS PORT PAYLOAD GAP COUNT
 *   pace pair ADDRESS PORT PAYLOAD GAP COUNT
 *
 * `spin` reads the clock until a packet is due, then calls send(2) on a connected socket. Packet i is
 * due at start + i * GAP picoseconds, regardless of delays before. `sleep` sleeps until 100 us before
 * that time and spins from there. `pair` sends two packets back to back where `spin` sends one. There
 * is no warm-up.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MAX_PAYLOAD 65507
#define NS_PER_SECOND 1000000000LL
/* Sleep ends this long before the due time, in ns, to cover most wake-up delays. */
#define WAKE_EARLY_NS 100000

static uint8_t packet[MAX_PAYLOAD];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_SECOND + t.tv_nsec;
}

static void sleep_until(int64_t instant)
{
	struct timespec t = { .tv_sec = instant / NS_PER_SECOND, .tv_nsec = instant % NS_PER_SECOND };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static int udp(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	return fd;
}

static int connected(const char *host, const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int fd = udp();

	if (inet_pton(AF_INET, host, &a.sin_addr) != 1) {
		fprintf(stderr, "%s is not an IPv4 address\n", host);
		exit(2);
	}
	if (connect(fd, (struct sockaddr *)&a, sizeof a))
		die("connect");
	return fd;
}

static void train(int fd, size_t payload, int64_t gap, int64_t count, int each, bool sleeps)
{
	int64_t start = now() + NS_PER_SECOND / 1000;
	int64_t i;
	int k;

	for (i = 0; i < count; i++) {
		int64_t due = start + i * gap / 1000;

		if (sleeps && due - now() > WAKE_EARLY_NS)
			sleep_until(due - WAKE_EARLY_NS);
		while (now() < due)
			;
		for (k = 0; k < each; k++)
			if (send(fd, packet, payload, 0) < 0)
				die("send");
	}
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";

	if (argc == 7 && atoi(argv[4]) > 0 && atoi(argv[4]) <= MAX_PAYLOAD) {
		bool pair = !strcmp(role, "pair");

		train(connected(argv[2], argv[3]), atoi(argv[4]), atoll(argv[5]), atoll(argv[6]),
		      pair ? 2 : 1, !strcmp(role, "sleep"));
	} else {
		fprintf(stderr, "usage: pace spin|sleep|pair ...\n");
		return 2;
	}
	return 0;
}
