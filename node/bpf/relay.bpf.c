// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * UDP relay over IPv4 in the driver. A packet to an address in `listen` is forwarded to `to`, from
 * a separate port for each client. A packet back to that port is forwarded to the client, from the
 * address that the client sent to. Only addresses, ports, hop limit and checksums change. Packets
 * that cannot be forwarded here pass to the stack unchanged.
 */
#include "dwell.bpf.h"

/* Set before loading; addresses and ports in network order. */
const volatile struct relay relay;

/* Flows, by port number relative to relay.first_port. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096); /* overridden by node/io/src/bpf/relay.rs, as below */
	__type(key, __u32);
	__type(value, struct relay_flow);
} flows SEC(".maps");

/* Port number of a client. May be out of date: `flows` is authoritative. */
struct client {
	__u32 address;
	__u16 port;
	__u16 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct client);
	__type(value, __u32);
} numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct relay_counters);
} counters SEC(".maps");

/* Where the search for a free port continues. */
__u32 next_number;

/* Maximum number of ports searched for a free one, or otherwise for the longest idle one. */
#define TRIES 16

struct frame {
	__u8 to[6];
	__u8 from[6];
	__u16 type;
};

/* The headers of a packet. */
struct datagram {
	struct frame *frame;
	struct ipv4 *ip;
	struct udp *udp;
};

/* Returns a checksum after `old` in the data it covers was replaced by `new` (RFC 1624, 3). */
static __always_inline __u16 replaced(__u16 checksum, __u32 old, __u32 new)
{
	__u32 sum = (__u16)~checksum;

	sum += (__u16)~old + (__u16)~(old >> 16) + (__u16)new + (__u16)(new >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Forwards a datagram with new addresses and ports, if there is a route. */
static __always_inline int send_on(struct xdp_md *context, const struct datagram *packet,
				   struct relay_counters *count, __u32 from, __u16 from_port,
				   __u32 to, __u16 to_port)
{
	struct bpf_fib_lookup way = {
		.family = 2, /* AF_INET */
		.l4_protocol = UDP,
		.sport = from_port,
		.dport = to_port,
		.total = ntohs(packet->ip->total),
		.interface = context->ingress_ifindex,
		.ipv4_from = from,
		.ipv4_to = to,
	};
	__u16 hops = *(__u16 *)&packet->ip->hops;
	__u16 checksum;

	if (packet->ip->hops <= 1 || bpf_fib_lookup(context, &way, sizeof(way), 0)) {
		count->no_way += 1;
		return XDP_PASS;
	}
	packet->ip->hops -= 1;
	checksum = replaced(packet->ip->checksum, hops, *(__u16 *)&packet->ip->hops);
	checksum = replaced(checksum, packet->ip->source, from);
	packet->ip->checksum = replaced(checksum, packet->ip->destination, to);
	if (relay.cleared) {
		packet->udp->checksum = 0;
	} else if (packet->udp->checksum) {
		checksum = replaced(packet->udp->checksum, packet->ip->source, from);
		checksum = replaced(checksum, packet->ip->destination, to);
		checksum = replaced(checksum, packet->udp->source, from_port);
		checksum = replaced(checksum, packet->udp->destination, to_port);
		packet->udp->checksum = checksum ? checksum : 0xffff;
	}
	packet->ip->source = from;
	packet->ip->destination = to;
	packet->udp->source = from_port;
	packet->udp->destination = to_port;
	__builtin_memcpy(packet->frame->from, way.mac_from, 6);
	__builtin_memcpy(packet->frame->to, way.mac_to, 6);
	return bpf_redirect(way.interface, 0);
}

/* Returns the flow of a client, which is created if necessary; 0 if no port is available. */
static __always_inline struct relay_flow *flow_of(const struct client *client, __u32 *number,
						  struct relay_counters *count, __u64 now)
{
	__u32 *known = bpf_map_lookup_elem(&numbers, client);
	struct relay_flow *flow, *oldest = 0;
	int i;

	if (known) {
		*number = *known;
		flow = bpf_map_lookup_elem(&flows, number);
		if (flow && flow->client == client->address && flow->port == client->port)
			return flow;
	}
	for (i = 0; i < TRIES; i++) {
		__u32 candidate = __sync_fetch_and_add(&next_number, 1) % relay.flows;

		flow = bpf_map_lookup_elem(&flows, &candidate);
		if (!flow)
			return 0;
		if (!oldest || flow->last < oldest->last) {
			oldest = flow;
			*number = candidate;
		}
		if (flow->last + relay.idle < now || !flow->last)
			break;
	}
	if (!oldest || bpf_map_update_elem(&numbers, client, number, 0))
		return 0;
	if (oldest->last && oldest->last + relay.idle >= now)
		count->evicted += 1;
	count->flows += 1;
	oldest->client = client->address;
	oldest->port = client->port;
	oldest->packets = 0;
	oldest->last = now;
	return oldest;
}

static __always_inline int forward(struct xdp_md *context, const struct datagram *packet,
				   struct relay_counters *count)
{
	struct client client = {
		.address = packet->ip->source,
		.port = packet->udp->source,
	};
	__u64 now = bpf_ktime_get_ns();
	struct relay_flow *flow;
	__u32 number = 0;
	int verdict;

	flow = flow_of(&client, &number, count, now);
	if (!flow) {
		count->no_way += 1;
		return XDP_PASS;
	}
	flow->last = now;
	flow->listen = packet->ip->destination;
	flow->packets += 1;
	verdict = send_on(context, packet, count, relay.own, htons(relay.first_port + number),
			  relay.to, relay.to_port);
	if (verdict == XDP_REDIRECT)
		count->forward += 1;
	return verdict;
}

static __always_inline int backward(struct xdp_md *context, const struct datagram *packet, __u32 number,
				    struct relay_counters *count)
{
	struct relay_flow *flow = bpf_map_lookup_elem(&flows, &number);
	int verdict;

	if (!flow || !flow->last) {
		count->no_way += 1;
		return XDP_PASS;
	}
	flow->last = bpf_ktime_get_ns();
	verdict = send_on(context, packet, count, flow->listen, relay.listen_port, flow->client,
			  flow->port);
	if (verdict == XDP_REDIRECT)
		count->backward += 1;
	return verdict;
}

static __always_inline int is_listened_at(__u32 address)
{
	__u32 i;

	for (i = 0; i < LISTENS; i++)
		if (i < relay.listens && relay.listen[i] == address)
			return 1;
	return 0;
}

SEC("xdp")
int relay_udp(struct xdp_md *context)
{
	void *data = (void *)(unsigned long)context->data;
	struct frame *frame = data;
	struct ipv4 *ip = (void *)(frame + 1);
	struct udp *udp = (void *)(ip + 1);
	const struct datagram packet = { frame, ip, udp };
	struct relay_counters *count;
	__u32 first = 0, number;

	if ((void *)(udp + 1) > (void *)(unsigned long)context->data_end)
		return XDP_PASS;
	/* No options, no fragment. */
	if (frame->type != htons(0x0800) || ip->version_length != 0x45 || ip->protocol != UDP ||
	    ip->fragment & htons(0x3fff))
		return XDP_PASS;
	count = bpf_map_lookup_elem(&counters, &first);
	if (!count)
		return XDP_PASS;
	if (udp->destination == relay.listen_port && is_listened_at(ip->destination))
		return forward(context, &packet, count);
	number = ntohs(udp->destination) - relay.first_port;
	if (ip->source == relay.to && udp->source == relay.to_port && ip->destination == relay.own &&
	    number < relay.flows)
		return backward(context, &packet, number, count);
	return XDP_PASS;
}

char licence[] SEC("license") = "Dual MIT/GPL";
