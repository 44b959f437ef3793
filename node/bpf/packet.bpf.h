/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * Finds the transport header of an Ethernet frame with at most one VLAN tag, in contiguous memory.
 */
#ifndef PACKET_BPF_H
#define PACKET_BPF_H

#include "dwell.bpf.h"

/* include/uapi/linux/if_ether.h */
#define ETH_IPV4 htons(0x0800)
#define ETH_IPV6 htons(0x86dd)
#define ETH_VLAN htons(0x8100)
#define ETH_VLAN_SERVICE htons(0x88a8)

/* "More fragments" and the offset of a fragment. */
#define FRAGMENT htons(0x3fff)

struct ethernet_header {
	__u8 to[6];
	__u8 from[6];
	__u16 type;
};

struct vlan_header {
	__u16 tag;
	__u16 type;
};

struct icmp_header {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u16 identifier;
	__u16 sequence;
};

/* Addresses and transport header of a packet. Addresses have 1 word for IPv4, 4 for IPv6. */
struct packet {
	const __u32 *source;
	const __u32 *destination;
	const void *transport;
	__u8 protocol;
};

/*
 * Fills in `packet` if the frame is a whole packet of this family (4 or 6). Fragments and IPv6
 * extension headers are refused. `family` is constant, so that the other family's code is removed.
 */
static __always_inline int parse_frame(const void *data, const void *end, __u8 family,
				       struct packet *packet)
{
	const struct ethernet_header *frame = data;
	const void *network = frame + 1;
	__u16 type;

	if (network > end)
		return 0;
	type = frame->type;
	if (type == ETH_VLAN || type == ETH_VLAN_SERVICE) {
		const struct vlan_header *vlan = network;

		network = vlan + 1;
		if (network > end)
			return 0;
		type = vlan->type;
	}
	if (family == 4) {
		const struct ipv4 *ip = network;
		__u32 length;

		if (type != ETH_IPV4 || (const void *)(ip + 1) > end)
			return 0;
		length = (ip->version_length & 15) * 4;
		if (ip->version_length >> 4 != 4 || length < sizeof(*ip) || ip->fragment & FRAGMENT)
			return 0;
		packet->source = &ip->source;
		packet->destination = &ip->destination;
		packet->protocol = ip->protocol;
		packet->transport = network + length;
	} else {
		const struct ipv6 *ip = network;

		if (type != ETH_IPV6 || (const void *)(ip + 1) > end ||
		    *(const __u8 *)network >> 4 != 6)
			return 0;
		packet->source = ip->source;
		packet->destination = ip->destination;
		packet->protocol = ip->next;
		packet->transport = ip + 1;
	}
	return 1;
}

#endif
