/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * Timestamps the packets of selected flows: each writes an event to the ring buffer. Packets pass
 * unchanged.
 *
 * An object per kind of hook (stamps_*.bpf.c) includes this file, because the kernel loads or refuses
 * an object as a whole. Before that it defines how packets are read:
 *
 * struct view: a packet
 * slice(view, at, buffer, size): `size` bytes at offset `at`, in place or copied to `buffer`; 0 if the
 *	packet is shorter
 * fast_slice(view, at, buffer, size): the same, but may return 0 where a copy would be slow
 * copy(view, at, to, size): copies 1 to HEAD bytes; returns 0 if that succeeded
 */
#ifndef STAMPS_BPF_H
#define STAMPS_BPF_H

#include "dwell.bpf.h"

/* Selected packets. Set before loading, so that the verifier removes unused code. */
const volatile struct filter filter;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20); /* overridden by node/io/src/bpf/tracer.rs */
} events SEC(".maps");

/* Events lost because the ring was full, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

/* The first bytes of a transport header. */
union transport {
	__u16 ports[2];
	struct {
		__u8 type;
		__u8 code;
		__u16 checksum;
		__u16 identifier;
	} echo;
	__u8 bytes[8];
};

/* Returns the offset of an event's head from the start of the transport header. */
static __always_inline __u32 head_offset(void)
{
	switch (filter.protocol) {
	case TCP:
		return 4;
	case ICMP:
		return 6;
	default:
		return 8;
	}
}

static __always_inline int is_filter_host(const __u32 *address)
{
	return address[0] == filter.host[0] && address[1] == filter.host[1] &&
	       address[2] == filter.host[2] && address[3] == filter.host[3];
}

static __always_inline int is_asked_for(const union transport *transport, __u8 family)
{
	__u16 source = transport->ports[0], destination = transport->ports[1];

	if (filter.protocol != ICMP)
		return !filter.port || source == filter.port || destination == filter.port;
	if (family == 4)
		return transport->echo.type == 8 || transport->echo.type == 0;
	return transport->echo.type == 128 || transport->echo.type == 129;
}

static __always_inline int is_on_the_way_out(enum hook hook)
{
	return hook == HOOK_POST_ROUTING || hook == HOOK_TX_TCX;
}

static __always_inline void *reserve(__u64 size)
{
	__u32 first = 0;
	void *event = bpf_ringbuf_reserve(&events, size, 0);

	if (!event) {
		__u64 *count = bpf_map_lookup_elem(&dropped, &first);

		if (count)
			*count += 1;
	}
	return event;
}

/*
 * Fills in everything but the addresses, and submits. `at` is the offset of the transport header.
 * `head` is the packet from head_offset() on, if HEAD bytes of it were readable at once.
 */
static __always_inline void submit(struct event *event, struct view *packet, __u32 at,
				   const union transport *transport, const __u8 *head,
				   __u16 length, enum hook hook, __u64 tai)
{
	__u32 there = 0;

	event->length = length;
	event->protocol = filter.protocol;
	event->ports[0] = transport->ports[0];
	event->ports[1] = filter.protocol == ICMP ? transport->echo.identifier :
						    transport->ports[1];
	if (head) {
		/* Copied in words, which the compiler could not do with byte pointers. */
		((__u64 *)event->head)[0] = ((const __u64 *)head)[0];
		((__u64 *)event->head)[1] = ((const __u64 *)head)[1];
		((__u64 *)event->head)[2] = ((const __u64 *)head)[2];
		there = HEAD;
	} else {
		__builtin_memset(event->head, 0, HEAD);
		if (length > head_offset())
			there = length - head_offset();
		if (there > HEAD)
			there = HEAD;
		if (there && copy(packet, at + head_offset(), event->head, there))
			there = 0;
	}
	event->head_length = there;
	event->spare = 0;
	/* Keeps the cost of writing an event out of the node's delay. */
	event->tai = is_on_the_way_out(hook) ? tai : bpf_ktime_get_tai_ns();
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static __always_inline void stamp4(struct view *packet, __u32 at, enum hook hook,
				   __u32 interface)
{
	/* Most packets have no options, and enough payload for a whole head. */
	__u32 buffer[(sizeof(struct ipv4) + sizeof(union transport) + HEAD) / sizeof(__u32)];
	__u32 transport_buffer[sizeof(union transport) / sizeof(__u32)];
	const union transport *transport;
	const __u8 *head = 0;
	const struct ipv4 *ip;
	struct event *event;
	__u64 tai = 0;
	__u32 length;

	ip = fast_slice(packet, at, buffer, sizeof(buffer));
	if (ip) {
		transport = (const void *)(ip + 1);
		head = transport->bytes + head_offset();
	} else {
		ip = slice(packet, at, buffer, sizeof(struct ipv4) + sizeof(union transport));
		if (!ip)
			return;
		transport = (const void *)(ip + 1);
	}
	if (ip->protocol != filter.protocol || ip->fragment & htons(0x1fff))
		return;
	if (filter.family == 6)
		return;
	if (filter.family == 4 && ip->source != filter.host[0] && ip->destination != filter.host[0])
		return;
	length = (ip->version_length & 15) * 4;
	if (length != sizeof(struct ipv4)) {
		transport = slice(packet, at + length, transport_buffer,
				  sizeof(transport_buffer));
		if (!transport)
			return;
		head = 0;
	}
	if (!is_asked_for(transport, 4))
		return;
	if (is_on_the_way_out(hook))
		tai = bpf_ktime_get_tai_ns();
	event = reserve(EVENT_IPV4);
	if (!event)
		return;
	event->interface = interface;
	event->hook = hook;
	event->family = 4;
	__builtin_memcpy(event->addresses, &ip->source, 8);
	submit(event, packet, at + length, transport, head, ntohs(ip->total) - length, hook, tai);
}

static __always_inline void stamp6(struct view *packet, __u32 at, enum hook hook,
				   __u32 interface)
{
	__u32 buffer[(sizeof(struct ipv6) + sizeof(union transport) + HEAD) / sizeof(__u32)];
	const union transport *transport;
	const __u8 *head = 0;
	const struct ipv6 *ip;
	struct event *event;
	__u64 tai = 0;

	ip = fast_slice(packet, at, buffer, sizeof(buffer));
	if (ip) {
		transport = (const void *)(ip + 1);
		head = transport->bytes + head_offset();
	} else {
		ip = slice(packet, at, buffer, sizeof(struct ipv6) + sizeof(union transport));
		if (!ip)
			return;
		transport = (const void *)(ip + 1);
	}
	/* Extension headers are not followed. */
	if (ip->next != (filter.protocol == ICMP ? ICMPV6 : filter.protocol))
		return;
	if (filter.family == 4)
		return;
	if (filter.family == 6 && !is_filter_host(ip->source) && !is_filter_host(ip->destination))
		return;
	if (!is_asked_for(transport, 6))
		return;
	if (is_on_the_way_out(hook))
		tai = bpf_ktime_get_tai_ns();
	event = reserve(sizeof(*event));
	if (!event)
		return;
	event->interface = interface;
	event->hook = hook;
	event->family = 6;
	__builtin_memcpy(event->addresses, ip->source, 32);
	submit(event, packet, at + sizeof(*ip), transport, head, ntohs(ip->payload), hook, tai);
}

#endif
