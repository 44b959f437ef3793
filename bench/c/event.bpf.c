// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Lower bound of tracing: for every packet at PRE_ROUTING, without filtering, writes byte for byte the
 * event that node/bpf/stamps.bpf.c writes for UDP. The benchmark compares dwell's program with it.
 */
#include "dwell.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} events SEC(".maps");

struct start {
	struct ipv4 ip;
	struct udp udp;
	__u64 head[3];
} __attribute__((packed, aligned(4)));

SEC("netfilter")
int minimal(struct bpf_nf_ctx *context)
{
	const struct start *start;
	struct bpf_dynptr packet;
	struct start buffer;
	struct event *event;

	if (bpf_dynptr_from_skb((struct __sk_buff *)context->skb, 0, &packet))
		return NF_ACCEPT;
	start = bpf_dynptr_slice(&packet, 0, &buffer, sizeof(buffer));
	if (!start)
		return NF_ACCEPT;
	event = bpf_ringbuf_reserve(&events, EVENT_IPV4, 0);
	if (!event)
		return NF_ACCEPT;
	event->interface = context->state->in->ifindex;
	event->length = ntohs(start->ip.total) - sizeof(struct ipv4);
	event->hook = HOOK_PRE_ROUTING;
	event->protocol = UDP;
	event->ports[0] = start->udp.source;
	event->ports[1] = start->udp.destination;
	event->family = 4;
	event->head_length = HEAD;
	event->spare = 0;
	((__u64 *)event->head)[0] = start->head[0];
	((__u64 *)event->head)[1] = start->head[1];
	((__u64 *)event->head)[2] = start->head[2];
	((__u32 *)event->addresses)[0] = start->ip.source;
	((__u32 *)event->addresses)[1] = start->ip.destination;
	event->tai = bpf_ktime_get_tai_ns();
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return NF_ACCEPT;
}

char licence[] SEC("license") = "Dual MIT/GPL";
