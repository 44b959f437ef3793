// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Sends datagrams from spoofed sources to a reflector and finds replies that are longer than their
 * requests.
 *
 *   hostile INTERFACE SOURCE ADDRESS PORT POOL COUNT RATE [mutate]
 *
 * POOL is a file of datagrams, each after its length as a big-endian u16, at most 1472 bytes. COUNT
 * datagrams are sent in rotation, at RATE per second (0: as fast as possible); `mutate` changes one
 * random byte of each. Sources are random addresses in the /8 of SOURCE. The low 11 bits of a source
 * port are the length of the datagram, so a socket filter (BPF, in the kernel) on INTERFACE finds
 * every reply that is longer. Prints one JSON object; frames and bytes of INTERFACE are those of
 * /proc/net/dev.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_LEN 1472
#define LEN_BITS 11
#define BATCH 32
#define MAX_POOL 65536
#define SETTLE_NS 500000000LL

struct frame {
	struct iphdr ip;
	struct udphdr udp;
	uint8_t payload[MAX_LEN];
} __attribute__((packed));

struct counters {
	uint64_t rx_bytes, rx_packets, tx_bytes, tx_packets;
};

struct datagram {
	const uint8_t *bytes;
	uint16_t len;
};

static struct datagram pool[MAX_POOL];
static size_t pooled;
static struct frame frames[BATCH];
static uint64_t state;

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

/* xorshift64 */
static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void read_pool(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t head[2];

	if (!file)
		die(path);
	while (pooled < MAX_POOL && fread(head, 1, 2, file) == 2) {
		uint16_t len = head[0] << 8 | head[1];
		uint8_t *bytes = malloc(len + 1);

		if (!bytes || len > MAX_LEN || fread(bytes, 1, len, file) != len) {
			fprintf(stderr, "%s is not a valid pool\n", path);
			exit(1);
		}
		pool[pooled++] = (struct datagram){ bytes, len };
	}
	fclose(file);
	if (!pooled) {
		fprintf(stderr, "%s is empty\n", path);
		exit(1);
	}
}

static struct counters counters(const char *interface)
{
	FILE *file = fopen("/proc/net/dev", "r");
	struct counters c = { 0 };
	char line[512];
	int found = 0;

	if (!file)
		die("/proc/net/dev");
	while (fgets(line, sizeof line, file)) {
		char *colon = strchr(line, ':');
		char *name = line + strspn(line, " ");

		if (!colon || strncmp(name, interface, colon - name) ||
		    strlen(interface) != (size_t)(colon - name))
			continue;
		found = sscanf(colon + 1,
			       "%" SCNu64 " %" SCNu64 " %*u %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
			       &c.rx_bytes, &c.rx_packets, &c.tx_bytes, &c.tx_packets);
	}
	fclose(file);
	if (found != 4) {
		fprintf(stderr, "no interface %s\n", interface);
		exit(1);
	}
	return c;
}

/* Opens a socket for UDP from `port` whose payload is longer than its destination port encodes. */
static int watch(const char *interface, uint16_t port)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 14 + 9),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 11),
		BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 14),
		BPF_STMT(BPF_LD | BPF_H | BPF_IND, 14),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, 8),
		BPF_STMT(BPF_LD | BPF_H | BPF_IND, 14 + 2),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (1 << LEN_BITS) - 1),
		BPF_STMT(BPF_ST, 0),
		BPF_STMT(BPF_LD | BPF_H | BPF_IND, 14 + 4),
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, 8),
		BPF_STMT(BPF_LDX | BPF_MEM, 0),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_X, 0, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 256),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { sizeof code / sizeof code[0], code };
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP),
				  .sll_ifindex = if_nametoindex(interface) };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int room = 8 << 20;

	if (fd < 0)
		die("packet socket");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) ||
	    bind(fd, (struct sockaddr *)&at, sizeof at))
		die("watch");
	return fd;
}

/* Counts replies longer than their requests so far; updates the longest payload. */
static uint64_t longer(int fd, unsigned *longest)
{
	uint64_t found = 0;
	uint8_t frame[256];

	while (recv(fd, frame, sizeof frame, 0) > 42) {
		unsigned len = (frame[38] << 8 | frame[39]) - 8;

		if (len > *longest)
			*longest = len;
		found++;
	}
	return found;
}

static void fill(struct frame *frame, struct iovec *iov, size_t n, uint32_t net, int mutate)
{
	const struct datagram *datagram = &pool[n % pooled];
	uint64_t random = draw();
	uint16_t len = datagram->len;
	uint16_t port = (1 + random % 31) << LEN_BITS | len;

	memcpy(frame->payload, datagram->bytes, len);
	if (mutate && len)
		frame->payload[(random >> 8) % len] ^= 1 + (random >> 24) % 255;
	frame->ip.saddr = htonl(net | (random >> 32 & 0xffffff));
	frame->udp.source = htons(port);
	frame->udp.len = htons(sizeof frame->udp + len);
	frame->ip.tot_len = htons(sizeof frame->ip + sizeof frame->udp + len);
	iov->iov_len = sizeof frame->ip + sizeof frame->udp + len;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct in_addr source;
	struct mmsghdr messages[BATCH];
	struct iovec iovs[BATCH];
	uint64_t count, rate, sent = 0, bytes = 0, found = 0, lost = 0;
	unsigned longest = 0;
	struct counters before, after;
	int fd, watcher, mutate;
	int64_t start, end;

	if (argc < 8 || inet_pton(AF_INET, argv[2], &source) != 1 ||
	    inet_pton(AF_INET, argv[3], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: hostile INTERFACE SOURCE ADDRESS PORT POOL COUNT RATE [mutate]\n");
		return 2;
	}
	read_pool(argv[5]);
	count = strtoull(argv[6], NULL, 10);
	rate = strtoull(argv[7], NULL, 10);
	mutate = argc > 8 && !strcmp(argv[8], "mutate");
	state = now() | 1;
	fprintf(stderr, "seed %" PRIu64 "\n", state);

	fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
	if (fd < 0)
		die("raw socket");
	watcher = watch(argv[1], atoi(argv[4]));
	memset(messages, 0, sizeof messages);
	for (int i = 0; i < BATCH; i++) {
		frames[i].ip = (struct iphdr){ .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP,
					       .daddr = to.sin_addr.s_addr };
		frames[i].udp.dest = htons(atoi(argv[4]));
		iovs[i].iov_base = &frames[i];
		messages[i].msg_hdr.msg_iov = &iovs[i];
		messages[i].msg_hdr.msg_iovlen = 1;
		messages[i].msg_hdr.msg_name = &to;
		messages[i].msg_hdr.msg_namelen = sizeof to;
	}

	before = counters(argv[1]);
	start = now();
	while (sent + lost < count) {
		uint64_t due = rate ? (now() - start) * rate / 1000000000ULL + 1 : count;
		uint64_t todo = (due < count ? due : count) - (sent + lost);
		int batch = todo < BATCH ? todo : BATCH, did;

		if (due <= sent + lost || (rate && batch < BATCH && due < count)) {
			struct timespec nap = { 0, 50000 };

			nanosleep(&nap, NULL);
			continue;
		}
		for (int i = 0; i < batch; i++)
			fill(&frames[i], &iovs[i], sent + lost + i, ntohl(source.s_addr) & 0xff000000, mutate);
		did = sendmmsg(fd, messages, batch, 0);
		if (did < 0) {
			if (errno != EINTR && errno != ENOBUFS && errno != EAGAIN)
				die("sendmmsg");
			lost++;
			continue;
		}
		for (int i = 0; i < did; i++)
			bytes += iovs[i].iov_len - sizeof(struct iphdr) - sizeof(struct udphdr);
		sent += did;
		found += longer(watcher, &longest);
	}
	end = now();
	/* Wait for the last replies. */
	do {
		struct counters seen = counters(argv[1]);

		usleep(SETTLE_NS / 1000 / 5);
		found += longer(watcher, &longest);
		after = counters(argv[1]);
		if (seen.rx_packets == after.rx_packets)
			break;
	} while (now() - end < 20 * SETTLE_NS);
	found += longer(watcher, &longest);
	{
		struct tpacket_stats stats;
		socklen_t size = sizeof stats;

		/* Longer replies dropped by the watching socket. */
		if (!getsockopt(watcher, SOL_PACKET, PACKET_STATISTICS, &stats, &size))
			found += stats.tp_drops;
	}
	printf("{\"sent\": %" PRIu64 ", \"not_sent\": %" PRIu64 ", \"payload_bytes\": %" PRIu64
	       ", \"seconds\": %.3f, \"frames_in\": %" PRIu64 ", \"bytes_in\": %" PRIu64
	       ", \"frames_out\": %" PRIu64 ", \"bytes_out\": %" PRIu64
	       ", \"longer_replies\": %" PRIu64 ", \"longest_longer_reply\": %u}\n",
	       sent, lost, bytes, (end - start) / 1e9, after.tx_packets - before.tx_packets,
	       after.tx_bytes - before.tx_bytes, after.rx_packets - before.rx_packets,
	       after.rx_bytes - before.rx_bytes, found, longest);
	return 0;
}
