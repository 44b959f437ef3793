// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Records the kernel timestamp, length and first bytes of each UDP packet of a stream and drops it: the
 * minimum a far end can do. Over a veth the softirq of a received packet runs on the sender's processor
 * before the next send. Any further work here would lengthen the gap between two packets of a pair, and
 * memory kept here would evict the sender's caches.
 */
#include "dwell.bpf.h"

#define NF_DROP 0
#define NF_ACCEPT 1
/* Minimum IP length of stream packets; shorter ones are control messages. */
#define MIN_IP_LEN 200

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} caught SEC(".maps");

/* Packets dropped because the ring was full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} missed SEC(".maps");

struct start {
	struct ipv4 ip;
	struct udp udp;
	__u64 mark[2];	/* start of dwell's payloads */
} __attribute__((packed, aligned(4)));

/* Fields used besides those in dwell.bpf.h. */
struct sk_buff___stamped {
	long long tstamp;
} __attribute__((preserve_access_index));

struct arrival {
	__u64 stamp;	/* CLOCK_REALTIME, ns; 0: timestamps are disabled */
	__u32 length;	/* bytes of the IP packet */
	__u32 spare;
	__u64 mark[2];
};

SEC("netfilter")
int catch_all(struct bpf_nf_ctx *context)
{
	const struct start *start;
	struct arrival *arrival;
	struct bpf_dynptr packet;
	struct start buffer;

	if (bpf_dynptr_from_skb((struct __sk_buff *)context->skb, 0, &packet))
		return NF_ACCEPT;
	start = bpf_dynptr_slice(&packet, 0, &buffer, sizeof(buffer));
	if (!start || start->ip.protocol != UDP || ntohs(start->ip.total) < MIN_IP_LEN)
		return NF_ACCEPT;
	arrival = bpf_ringbuf_reserve(&caught, sizeof(*arrival), 0);
	if (!arrival) {
		__u64 *count = bpf_map_lookup_elem(&missed, &(__u32){ 0 });

		if (count)
			__sync_fetch_and_add(count, 1);
		return NF_DROP;
	}
	arrival->stamp = ((struct sk_buff___stamped *)context->skb)->tstamp;
	arrival->length = ntohs(start->ip.total);
	arrival->spare = 0;
	arrival->mark[0] = start->mark[0];
	arrival->mark[1] = start->mark[1];
	bpf_ringbuf_submit(arrival, BPF_RB_NO_WAKEUP);
	return NF_DROP;
}

char licence[] SEC("license") = "Dual MIT/GPL";
