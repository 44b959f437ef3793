// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Returns UDP over IPv4 for one port to its sender before the network stack. No program is woken for the
 * reply, so the extra round-trip time with a relay is the relay's own.
 */
#include "dwell.bpf.h"

#define XDP_TX 3
#define ANSWERED 5001

struct start {
	__u8 to[6];
	__u8 from[6];
	__u16 type;
	struct ipv4 ip;
	struct udp udp;
} __attribute__((packed, aligned(2)));

SEC("xdp")
int echo(struct xdp_md *packet)
{
	struct start *start = (void *)(long)packet->data;
	__u8 mac[6];
	__u32 address;
	__u16 port;

	if ((void *)(start + 1) > (void *)(long)packet->data_end)
		return XDP_PASS;
	if (start->type != htons(0x0800) || start->ip.version_length != 0x45 || start->ip.protocol != UDP ||
	    start->udp.destination != htons(ANSWERED))
		return XDP_PASS;
	/* Swapping the addresses and ports leaves all checksums valid. */
	__builtin_memcpy(mac, start->to, 6);
	__builtin_memcpy(start->to, start->from, 6);
	__builtin_memcpy(start->from, mac, 6);
	address = start->ip.source;
	start->ip.source = start->ip.destination;
	start->ip.destination = address;
	port = start->udp.source;
	start->udp.source = start->udp.destination;
	start->udp.destination = port;
	return XDP_TX;
}

char licence[] SEC("license") = "Dual MIT/GPL";
