// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Timestamps the replies of one measurement in the driver, and its probes at tcx egress. Each
 * writes an event with the id of the probe. All packets pass unchanged.
 */
#include "packet.bpf.h"
#include "probe_stamps.bpf.h"

#define ECHO_REPLY 0
#define ECHO_REQUEST 8
#define ECHO_REQUEST_V6 128
#define ECHO_REPLY_V6 129

const volatile struct probe_filter filter;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} events SEC(".maps");

/* Events lost because the ring was full, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

static __always_inline int is_address(const __u32 *address, const volatile __u32 *wanted)
{
	if (address[0] != wanted[0])
		return 0;
	return filter.family == 4 || (address[1] == wanted[1] && address[2] == wanted[2] &&
				      address[3] == wanted[3]);
}

/* Whether the transport header is that of a probe, or of a reply. */
static __always_inline int is_flow(const void *transport, int is_probe)
{
	const struct icmp_header *icmp = transport;
	const struct udp *udp = transport;
	__u16 local, remote;

	if (filter.protocol != UDP) {
		__u8 type = filter.protocol == ICMP ? (is_probe ? ECHO_REQUEST : ECHO_REPLY) :
				 (is_probe ? ECHO_REQUEST_V6 : ECHO_REPLY_V6);

		return icmp->type == type && !icmp->code && icmp->identifier == filter.local_port;
	}
	local = is_probe ? udp->source : udp->destination;
	remote = is_probe ? udp->destination : udp->source;
	return remote == filter.remote_port && (!filter.local_port || local == filter.local_port);
}

/* Writes an event if the frame is a probe or a reply of the measurement. */
static __always_inline void stamp(const void *data, const void *end, int is_probe, __u32 interface)
{
	struct packet packet = {};
	struct probe_event *event;
	const void *id;
	__u64 tai;

	if (!parse_frame(data, end, filter.family, &packet) || packet.protocol != filter.protocol)
		return;
	if (!is_address(is_probe ? packet.source : packet.destination, filter.local) ||
	    !is_address(is_probe ? packet.destination : packet.source, filter.remote))
		return;
	if (packet.transport + sizeof(struct udp) > end || !is_flow(packet.transport, is_probe))
		return;
	id = packet.transport + (is_probe ? filter.probe_id_at : filter.reply_id_at);
	if (id + filter.id_length > end)
		return;
	tai = bpf_ktime_get_tai_ns();
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__u32 first = 0;
		__u64 *count = bpf_map_lookup_elem(&dropped, &first);

		if (count)
			*count += 1;
		return;
	}
	event->tai = tai;
	*(__u64 *)event->id = 0;
	if (filter.id_length == 2)
		__builtin_memcpy(event->id, id, 2);
	else if (filter.id_length == 4)
		__builtin_memcpy(event->id, id, 4);
	else if (filter.id_length == 8)
		__builtin_memcpy(event->id, id, 8);
	event->is_probe = is_probe;
	event->interface = interface;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

SEC("xdp.frags")
int stamp_reply(struct xdp_md *frame)
{
	stamp((void *)(unsigned long)frame->data, (void *)(unsigned long)frame->data_end, 0,
	      frame->ingress_ifindex);
	return XDP_PASS;
}

SEC("tcx/egress")
int stamp_probe(struct __sk_buff *frame)
{
	stamp((void *)(unsigned long)frame->data, (void *)(unsigned long)frame->data_end, 1,
	      frame->ifindex);
	return TCX_NEXT;
}

char licence[] SEC("license") = "Dual MIT/GPL";
