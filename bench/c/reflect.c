// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Lower bound for reflecting UDP in batches, and a load for reflectors. The benchmark compares dwell with it.
 *
 *   reflect echo ADDRESS PORT
 *   reflect blast ADDRESS PORT RATE MILLISECONDS DATAGRAM
 *
 * `echo` receives up to BATCH datagrams with recvmmsg() and returns them with sendmmsg(), with a receive
 * buffer of 32 MiB beyond the system's limit (SO_RCVBUFFORCE). `blast` sends DATAGRAM (hexadecimal digits)
 * at RATE per second (0: as fast as possible) for a time, with the number of the datagram in bytes 4 to 7 in
 * network order, and prints counts as one JSON object. Datagrams due together are sent as one buffer that
 * the kernel segments (UDP_SEGMENT), so that one core can overload any reflector. `blast` reads no replies:
 * its receive buffer is as small as possible, and the counters of the network namespace show what arrived.
 * `replies` is their number GRACE_NS after the end, so requests that still wait in the reflector's buffer
 * are not answered. Then `blast` waits until no more replies arrive.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BATCH 32
#define MAX_SIZE 2048
#define RECEIVE_BUFFER (32 << 20)
#define NUMBER_AT 4
#define GRACE_NS 1000000LL
#define SETTLED_NS 20000000LL

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct sockaddr_in address(const char *host, const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	if (inet_pton(AF_INET, host, &a.sin_addr) != 1) {
		fprintf(stderr, "%s is not an IPv4 address\n", host);
		exit(2);
	}
	return a;
}

static int udp(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	return fd;
}

static _Noreturn void echo(const char *host, const char *port)
{
	static char buffers[BATCH][MAX_SIZE];
	static struct sockaddr_in from[BATCH];
	static struct iovec iov[BATCH];
	static struct mmsghdr messages[BATCH];
	struct sockaddr_in local = address(host, port);
	int fd = udp(), size = RECEIVE_BUFFER;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		die("SO_RCVBUFFORCE");
	if (bind(fd, (struct sockaddr *)&local, sizeof(local)))
		die("bind");
	for (int i = 0; i < BATCH; i++) {
		iov[i].iov_base = buffers[i];
		messages[i].msg_hdr.msg_iov = &iov[i];
		messages[i].msg_hdr.msg_iovlen = 1;
		messages[i].msg_hdr.msg_name = &from[i];
	}
	fprintf(stderr, "listening on %s:%s\n", host, port);
	for (;;) {
		int n;

		for (int i = 0; i < BATCH; i++) {
			iov[i].iov_len = MAX_SIZE;
			messages[i].msg_hdr.msg_namelen = sizeof(from[i]);
		}
		n = recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, NULL);
		for (int i = 0; i < n; i++)
			iov[i].iov_len = messages[i].msg_len;
		for (int done = 0; done < n;) {
			int sent = sendmmsg(fd, messages + done, n - done, 0);

			done += sent > 0 ? sent : 1;
		}
	}
}

static size_t parse(const char *digits, uint8_t *datagram)
{
	size_t size = strlen(digits) / 2;

	if (strlen(digits) % 2 || size < NUMBER_AT + 4 || size > MAX_SIZE) {
		fprintf(stderr, "DATAGRAM must have %d to %d bytes\n", NUMBER_AT + 4, MAX_SIZE);
		exit(2);
	}
	for (size_t i = 0; i < size; i++) {
		if (sscanf(digits + 2 * i, "%2hhx", &datagram[i]) != 1) {
			fprintf(stderr, "DATAGRAM has an invalid digit\n");
			exit(2);
		}
	}
	return size;
}

/* Returns the datagrams that arrived at sockets of this network namespace, read or not. */
static uint64_t arrived(void)
{
	char line[1024], names[1024] = "";
	uint64_t sum = 0;
	FILE *file = fopen("/proc/net/snmp", "r");

	if (!file)
		die("/proc/net/snmp");
	while (fgets(line, sizeof(line), file)) {
		char *name_rest, *value_rest, *name, *value;

		if (strncmp(line, "Udp: ", 5))
			continue;
		if (!*names) {
			strcpy(names, line);
			continue;
		}
		name = strtok_r(names, " \n", &name_rest);
		value = strtok_r(line, " \n", &value_rest);
		for (; name && value; name = strtok_r(NULL, " \n", &name_rest),
				      value = strtok_r(NULL, " \n", &value_rest))
			if (!strcmp(name, "InDatagrams") || !strcmp(name, "RcvbufErrors"))
				sum += strtoull(value, NULL, 10);
		break;
	}
	fclose(file);
	return sum;
}

static void wait_until(int64_t end)
{
	while (now() < end)
		;
}

static int blast(char **argv)
{
	static uint8_t packets[BATCH * MAX_SIZE];
	struct sockaddr_in to = address(argv[2], argv[3]);
	double rate = atof(argv[4]);
	int size = parse(argv[6], packets), least = 1, fd = udp();
	uint64_t sent = 0, failed = 0, before, replies, last, more;
	int64_t start, end, t;

	for (int i = 1; i < BATCH; i++)
		memcpy(packets + i * size, packets, size);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least)) ||
	    setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size)) ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to)))
		die("socket");
	before = arrived();
	start = now();
	end = start + atoll(argv[5]) * 1000000;
	while ((t = now()) < end) {
		uint64_t due = rate > 0 ? (uint64_t)((t - start) * rate / 1e9) : sent + failed + BATCH;
		uint64_t behind = due - sent - failed;
		unsigned int n = due <= sent + failed ? 0 : behind < BATCH ? behind : BATCH;

		if (!n)
			continue;
		for (unsigned int i = 0; i < n; i++) {
			uint32_t number = htonl(sent + i);

			memcpy(packets + i * size + NUMBER_AT, &number, sizeof(number));
		}
		if (send(fd, packets, n * size, 0) > 0)
			sent += n;
		else
			failed += n;
	}
	wait_until(t + GRACE_NS);
	replies = more = arrived();
	do {
		last = more;
		wait_until(now() + SETTLED_NS);
		more = arrived();
	} while (more != last);
	printf("{\"sent\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"elapsed_ns\": %" PRId64
	       ", \"replies\": %" PRIu64 "}\n",
	       sent, failed, t - start, replies - before);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "echo"))
		echo(argv[2], argv[3]);
	if (argc == 7 && !strcmp(argv[1], "blast"))
		return blast(argv);
	fprintf(stderr, "usage: see the comment at the top of bench/c/reflect.c\n");
	return 2;
}
