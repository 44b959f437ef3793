// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Lower bound for relaying UDP, and tools to load relays. The benchmark compares dwell with it.
 *
 *   relay relay ADDRESS PORT TO_ADDRESS TO_PORT [busy] [aes]
 *   relay blast ADDRESS PORT SIZE RATE MILLISECONDS [single]
 *   relay hole ADDRESS PORT
 *
 * `relay` forwards packets from one client and replies back to it, with one receive and one send call
 * per packet and default buffers. `busy` polls instead of sleeping. `aes` encrypts all but the first 12
 * bytes towards TO with AES-128 in counter mode (OpenSSL EVP), with a 12-byte nonce in the packet, and
 * decrypts replies. `blast` sends packets with SIZE bytes of payload at RATE per second (0: as fast as
 * possible) for a time, numbered in their first 8 bytes, and prints their count as one JSON object.
 * Packets due together are sent as one buffer that the kernel segments (UDP_SEGMENT), so that one core
 * can overload any relay; `single` sends each packet through the stack separately, as tracing needs.
 * `hole` opens a port and reads nothing; the kernel's counters show what arrived.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CLEAR 12
#define NONCE 12
#define MAX_PAYLOAD 65507
#define BATCH 32

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

static int bound(const char *host, const char *port)
{
	struct sockaddr_in a = address(host, port);
	int fd = udp();

	if (bind(fd, (struct sockaddr *)&a, sizeof a))
		die("bind");
	return fd;
}

static int connected(const char *host, const char *port)
{
	struct sockaddr_in a = address(host, port);
	int fd = udp();

	if (connect(fd, (struct sockaddr *)&a, sizeof a))
		die("connect");
	return fd;
}

/* Cipher of one direction: 8 random bytes of salt, and a packet counter. */
struct cipher {
	EVP_CIPHER_CTX *ctx;
	uint8_t nonce[NONCE];
	uint32_t packets;
};

static void cipher_init(struct cipher *c, const uint8_t key[16])
{
	static const uint8_t zero[16];

	c->ctx = EVP_CIPHER_CTX_new();
	if (!c->ctx || EVP_EncryptInit_ex(c->ctx, EVP_aes_128_ctr(), NULL, key, zero) != 1 ||
	    getrandom(c->nonce, 8, 0) != 8)
		die("cipher");
}

static void keystream(struct cipher *c, const uint8_t *nonce, uint8_t *out, const uint8_t *in, int len)
{
	uint8_t iv[16] = { 0 };
	int done;

	memcpy(iv, nonce, NONCE);
	EVP_EncryptInit_ex(c->ctx, NULL, NULL, NULL, iv);
	EVP_EncryptUpdate(c->ctx, out, &done, in, len);
}

static ssize_t encipher(struct cipher *c, uint8_t *out, const uint8_t *in, ssize_t len)
{
	uint32_t counter = htonl(c->packets++);

	if (len <= CLEAR) {
		memcpy(out, in, len);
		return len;
	}
	memcpy(c->nonce + 8, &counter, 4);
	memcpy(out, in, CLEAR);
	memcpy(out + CLEAR, c->nonce, NONCE);
	keystream(c, c->nonce, out + CLEAR + NONCE, in + CLEAR, len - CLEAR);
	return len + NONCE;
}

static ssize_t decipher(struct cipher *c, uint8_t *out, const uint8_t *in, ssize_t len)
{
	if (len < CLEAR + NONCE) {
		memcpy(out, in, len);
		return len;
	}
	memcpy(out, in, CLEAR);
	keystream(c, in + CLEAR, out + CLEAR, in + CLEAR + NONCE, len - CLEAR - NONCE);
	return len - NONCE;
}

static _Noreturn void relay(int argc, char **argv)
{
	static uint8_t in[MAX_PAYLOAD], out[MAX_PAYLOAD + NONCE];
	struct sockaddr_in client = { 0 };
	socklen_t client_len = sizeof client;
	struct cipher there = { 0 }, back = { 0 };
	bool busy = false, aes = false;
	uint8_t key[16];
	int near, far;

	for (int i = 6; i < argc; i++) {
		busy |= !strcmp(argv[i], "busy");
		aes |= !strcmp(argv[i], "aes");
	}
	near = bound(argv[2], argv[3]);
	far = connected(argv[4], argv[5]);
	if (aes) {
		if (getrandom(key, sizeof key, 0) != sizeof key)
			die("getrandom");
		cipher_init(&there, key);
		cipher_init(&back, key);
	}
	fprintf(stderr, "listening on %s:%s\n", argv[2], argv[3]);
	for (;;) {
		struct pollfd ready[2] = { { .fd = near, .events = POLLIN }, { .fd = far, .events = POLLIN } };
		ssize_t len;

		if (!busy && poll(ready, 2, -1) < 0)
			die("poll");
		if (busy || ready[0].revents) {
			client_len = sizeof client;
			len = recvfrom(near, in, sizeof in, MSG_DONTWAIT, (struct sockaddr *)&client, &client_len);
			if (len >= 0) {
				ssize_t n = aes ? encipher(&there, out, in, len) : len;

				send(far, aes ? out : in, n, 0);
			}
		}
		if (busy || ready[1].revents) {
			len = recv(far, in, sizeof in, MSG_DONTWAIT);
			if (len >= 0 && client.sin_port) {
				ssize_t n = aes ? decipher(&back, out, in, len) : len;

				sendto(near, aes ? out : in, n, 0, (struct sockaddr *)&client, client_len);
			}
		}
	}
}

static int blast(char **argv, bool single)
{
	static uint8_t packets[MAX_PAYLOAD];
	int fd = connected(argv[2], argv[3]);
	int size = atoi(argv[4]);
	double rate = atof(argv[5]);
	int64_t start = now(), end = start + atoll(argv[6]) * 1000000;
	int64_t t = start;
	uint64_t sent = 0, failed = 0;

	if (size < 8 || size > MAX_PAYLOAD / BATCH) {
		fprintf(stderr, "SIZE must be 8 to %d\n", MAX_PAYLOAD / BATCH);
		return 2;
	}
	if (setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size))
		die("UDP_SEGMENT");
	while ((t = now()) < end) {
		uint64_t due = rate > 0 ? (uint64_t)((t - start) * rate / 1e9) : sent + failed + BATCH;
		uint64_t behind = due - sent - failed;
		unsigned most = single ? 1 : BATCH;
		unsigned n = due <= sent + failed ? 0 : behind < most ? behind : most;

		if (!n)
			continue;
		for (unsigned i = 0; i < n; i++) {
			uint64_t number = sent + i;

			memcpy(packets + i * size, &number, 8);
		}
		if (send(fd, packets, n * size, 0) > 0)
			sent += n;
		else
			failed += n;
	}
	printf("{\"sent\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"elapsed_ns\": %" PRId64 "}\n", sent, failed,
	       t - start);
	return 0;
}

static int hole(char **argv)
{
	int fd = bound(argv[2], argv[3]);
	int least = 1;

	/* Unread datagrams are in no counter: keep the buffer small. */
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
	fprintf(stderr, "listening on %s:%s\n", argv[2], argv[3]);
	for (;;)
		pause();
	return fd;
}

int main(int argc, char **argv)
{
	if (argc >= 6 && !strcmp(argv[1], "relay"))
		relay(argc, argv);
	if (argc == 7 && !strcmp(argv[1], "blast"))
		return blast(argv, false);
	if (argc == 8 && !strcmp(argv[1], "blast") && !strcmp(argv[7], "single"))
		return blast(argv, true);
	if (argc == 4 && !strcmp(argv[1], "hole"))
		return hole(argv);
	fprintf(stderr, "usage: see the comment at the top of bench/c/relay.c\n");
	return 2;
}
