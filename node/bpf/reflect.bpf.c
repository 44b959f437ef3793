// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Answers probes in the driver: STAMP, the round-trip message, UDP echo and ICMP echo, over IPv4
 * and IPv6, with at most one VLAN tag. A reply is the frame of its request, so it is as long.
 * Packets that are not for a service pass unchanged. Packets for a service that the program cannot
 * answer pass to the socket there, within the limit of their source: fragments, IP options, extension
 * headers, merged datagrams, TLVs that it does not know.
 */
#include "reflect.bpf.h"
#include "reflect_rules.bpf.h"
#include "reflect_stamp.bpf.h"

const volatile struct reflect reflect;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DESTINATIONS);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

/* Addresses of this machine, and broadcast addresses of its networks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DESTINATIONS);
	__type(key, __u32[4]);
	__type(value, __u32);
} own_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reflect_state);
} state SEC(".maps");

/* By service number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SERVICES);
	__type(key, __u32);
	__type(value, struct reflect_counters);
} counters SEC(".maps");

/* TTL or hop limit of replies other than echoes (net.ipv4.ip_default_ttl). */
#define HOPS 64

#define IPV4 0x0800
#define IPV6 0x86dd
#define VLAN 0x8100
#define VLAN_SERVICE 0x88a8
#define UDP_HEADER 8

/* In the first word of an IPv6 header (RFC 8200, 3). */
#define TRAFFIC_CLASS htonl(0x0ff00000)

#define ECHO_REPLY 0
#define ECHO_REQUEST 8
#define ECHO_REQUEST_V6 128
#define ECHO_REPLY_V6 129

/* Bits of the fragment fields: offset, and more fragments (RFC 791, RFC 8200 4.5). */
#define FRAGMENT_OFFSET htons(0x1fff)
#define FRAGMENT_OFFSET_V6 htons(0xfff8)
#define FRAGMENT_ANY htons(0x3fff)

/* Extension headers (RFC 8200 4.3 to 4.6, RFC 4302), and how many the program looks behind. */
#define HOP_BY_HOP 0
#define ROUTING 43
#define FRAGMENT 44
#define AUTHENTICATION 51
#define DESTINATION_OPTIONS 60
#define EXTENSIONS 6

/* The round-trip message and its last 4 bytes, "REQ" and "ACK": core/wire/src/roundtrip.rs. */
#define ROUNDTRIP 24
#define ROUNDTRIP_REQUEST htonl(0x52455100)
#define ROUNDTRIP_REPLY htonl(0x41434b00)

struct ethernet {
	__u8 to[6];
	__u8 from[6];
	__u16 type;
};

struct vlan {
	__u16 tag;
	__u16 type;
};

/* The first bytes of an extension header; `offset` is that of a fragment. */
struct extension {
	__u8 next;
	__u8 length;
	__u16 offset;
	__u32 rest;
};

struct icmp {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u16 identifier;
	__u16 sequence;
};

#ifdef WITHOUT_KERNEL_TYPES
#define datagrams(context, now, length) 1
#else
struct xdp_buff {
	void *data_hard_start;
	__u32 frame_sz;
} __attribute__((preserve_access_index));

struct skb_shared_info {
	unsigned short gso_size;
} __attribute__((preserve_access_index));

/* Kernel functions (kernel/bpf/helpers.c), since Linux 6.2. */
extern void *bpf_cast_to_kern_ctx(void *context) __ksym;
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym;

/* SMP_CACHE_BYTES of x86, ARMv7, ARM64 and RISC-V. */
#define CACHE_LINE 64

/*
 * Returns the number of datagrams that a frame of this length holds from the UDP header on: more than
 * one if the kernel merged them (UDP_SEGMENT, UDP GRO). In generic mode the frame is that of a socket
 * buffer, whose segment size is in the structure at its end (skb_end_pointer(), linux/skbuff.h). In
 * native mode nothing is merged.
 */
static __always_inline __u32 datagrams(struct xdp_md *context, const struct reflect_state *now,
				       __u16 length)
{
	const __u64 room = (__builtin_preserve_type_info(*(struct skb_shared_info *)0, 1) +
			    CACHE_LINE - 1) & ~(CACHE_LINE - 1ULL);
	struct xdp_buff *buffer;
	struct skb_shared_info *shared;
	__u32 size;

	if (now->native)
		return 1;
	buffer = bpf_cast_to_kern_ctx(context);
	shared = bpf_rdonly_cast(buffer->data_hard_start + buffer->frame_sz - room,
				 __builtin_btf_type_id(*(struct skb_shared_info *)0, 1));
	size = shared->gso_size;
	if (size && length > UDP_HEADER)
		return (length - UDP_HEADER + size - 1) / size;
	return 1;
}
#endif

/* Returns the type of a frame; 0 if it is too short. */
static __always_inline __u16 frame_type(const struct ethernet *frame, const void *end)
{
	return (void *)(frame + 1) > end ? 0 : frame->type;
}

/* Whether the frame is for this interface or a group, which is_loop() refuses. */
static __always_inline int is_to_interface(const struct ethernet *frame,
					   const struct reflect_state *now)
{
	const __u16 *to = (const __u16 *)frame->to;

	return frame->to[0] & 1 ||
	       (to[0] == now->mac[0] && to[1] == now->mac[1] && to[2] == now->mac[2]);
}

static __always_inline __u16 header_sum(const struct ipv4 *ip)
{
	const packet_word *words = (const packet_word *)ip;
	__u64 sum = 0;
	int i;

#pragma unroll
	for (i = 0; i < 5; i++)
		sum += words[i];
	return fold(sum);
}

static __always_inline __u64 address_sum(const __u32 *address)
{
	return (__u64)address[0] + address[1] + address[2] + address[3];
}

/* Returns the number of a bit for an address; node/io/src/bpf/reflect.rs computes the same. */
static __always_inline __u32 own_bit(const __u32 *address)
{
	return (address[0] ^ address[1] ^ address[2] ^ address[3]) * 0x9e3779b1 >> 26;
}

/* Most foreign addresses have a bit of no own address, which saves the look-up. */
static __always_inline int is_own(const __u32 *address, const struct reflect_state *now)
{
	return now->own >> own_bit(address) & 1 && bpf_map_lookup_elem(&own_addresses, address);
}

/* Whether the addresses or the source port forbid a reply. */
static __always_inline int is_loop(const struct ethernet *frame, const struct request *request,
				   const struct reflect_state *now, __u32 kind)
{
	__u16 port = ntohs(request->from_port);

	if (frame->to[0] & 1 || frame->from[0] & 1 || is_group(request->from))
		return 1;
	/* The source of an IPv6 packet cannot be an IPv4 address (ip6_rcv_core(), net/ipv6). */
	if (request->is_ipv6 && is_mapped(request->from))
		return 1;
	if (!reflect.loopback && (is_loopback(request->from) || is_own(request->from, now)))
		return 1;
	if (kind == KIND_ICMP)
		return 0;
	return reflect.ports[port >> 6 & 1023] >> (port & 63) & 1;
}

/* Exchanges the addresses of the frame. */
static __always_inline void return_frame(struct ethernet *frame)
{
	__u8 to[6];

	__builtin_memcpy(to, frame->to, 6);
	__builtin_memcpy(frame->to, frame->from, 6);
	__builtin_memcpy(frame->from, to, 6);
}

static __always_inline void return_ipv4(struct ipv4 *ip, __u8 hops, __u8 service)
{
	__u32 source = ip->source;

	ip->service = service;
	/* A packet that is not fragmented needs no identification (RFC 6864, 4.1). */
	ip->id = 0;
	ip->fragment = htons(0x4000);
	ip->hops = hops;
	ip->checksum = 0;
	ip->source = ip->destination;
	ip->destination = source;
	ip->checksum = ~header_sum(ip);
}

/* `kept` are the bits of the first word that the reply keeps. */
static __always_inline void return_ipv6(struct ipv6 *ip, __u8 hops, __u32 kept)
{
	__u32 source[4];

	ip->version = htonl(0x60000000) | (ip->version & kept);
	ip->hops = hops;
	__builtin_memcpy(source, ip->source, 16);
	__builtin_memcpy(ip->source, ip->destination, 16);
	__builtin_memcpy(ip->destination, source, 16);
}

/*
 * Leaves packets to the socket within the limit of their source; returns the outcome. Their STAMP
 * session stays at the socket from then on. An identifier that the packet is too short for is 0.
 */
static __always_inline int leave(const struct request *request, const struct service *service,
				 const void *payload, const void *end, __u32 packets)
{
	const __u16 *ssid = payload + __builtin_offsetof(struct stamp, ssid);
	struct session *session;

	if (!is_within_limit(request, service, packets))
		return LIMITED;
	if (service->kind == KIND_STAMP) {
		int has_ssid = request->length >= __builtin_offsetof(struct stamp, received) &&
			       (const void *)(ssid + 1) <= end;

		session = find_session(request, service->number, has_ssid ? *ssid : 0,
				       bpf_ktime_get_tai_ns());
		if (session)
			session->at_socket = 1;
	}
	return TO_SOCKET;
}

/* Writes the reply to a STAMP request and returns its checksum. */
static __always_inline __u16 write_stamp(struct xdp_md *context, const struct request *request,
					 const struct reflect_state *now, struct stamp *packet,
					 struct session *session, __u16 checksum, __u64 t2)
{
	__u64 old = stamp_sum(packet), new = 0;

	answer_tlvs(context, request->transport + UDP_HEADER + sizeof(*packet),
		    request->length - sizeof(*packet), 1, &old, &new);
	packet->sender_sequence = packet->sequence;
	packet->sender_time[0] = packet->time[0];
	packet->sender_time[1] = packet->time[1];
	packet->sender_error = packet->error;
	packet->zero = 0;
	*(__u32 *)&packet->hops = request->hops;
	packet->error = now->error;
	if (!reflect.stateless)
		packet->sequence = htonl(__sync_fetch_and_add(&session->received, 1));
	write_ntp(packet->received, t2 - now->tai_offset);
	write_ntp(packet->time, bpf_ktime_get_tai_ns() - now->tai_offset);
	return exchanged(checksum, old, new + stamp_sum(packet));
}

/* Answers a STAMP request; returns the outcome. */
static __always_inline int answer_stamp(struct xdp_md *context, const struct request *request,
					const struct service *service,
					const struct reflect_state *now, struct stamp *packet,
					const void *end, __u16 *checksum, __u64 t2)
{
	struct session *session;
	__u64 ignored = 0;
	int is_known = 1;

	/* Shorter than STAMP, as TWAMP-light packets are: leave it to the socket. */
	if ((void *)(packet + 1) > end || request->length < sizeof(*packet))
		return leave(request, service, packet, end, 1);
	switch (likeness(packet)) {
	case LIKENESS_FULL:
		return LOOPING;
	case LIKENESS_PARTIAL:
		/* The socket engine counts it as identical to others. */
		is_known = 0;
	}
	is_known = is_known && answer_tlvs(context, request->transport + UDP_HEADER + sizeof(*packet),
					   request->length - sizeof(*packet), 0, &ignored, &ignored);
	if (!is_known)
		return leave(request, service, packet, end, 1);
	if (!is_within_limit(request, service, 1))
		return LIMITED;
	session = find_session(request, service->number, packet->ssid, t2);
	if (!session || session->at_socket)
		return TO_SOCKET;
	*checksum = write_stamp(context, request, now, packet, session, *checksum, t2);
	return REPLIED;
}

/* Answers an echo request; returns the outcome. */
static __always_inline int answer_echo(const struct request *request,
				       const struct service *service, const __u32 *payload,
				       const void *end)
{
	int outcome = REPLIED;

	if (may_be_reply(payload, request->length, end))
		outcome = TO_SOCKET;
	else if (is_silenced(request, service->number, bpf_ktime_get_ns()))
		return SILENCED;
	return is_within_limit(request, service, 1) ? outcome : LIMITED;
}

/* Whether the payload is not a request. */
static __always_inline int is_malformed(const struct request *request,
					const struct service *service, const __u32 *payload,
					const void *end)
{
	if (service->kind == KIND_STAMP)
		return request->length < 14;
	if (service->kind == KIND_ROUNDTRIP)
		return request->length != ROUNDTRIP || (const void *)(payload + 6) > end ||
		       payload[5] != ROUNDTRIP_REQUEST;
	return !request->length;
}

/* Answers the UDP datagram of a service; returns the outcome. */
static __always_inline int answer_udp(struct xdp_md *context, struct request *request,
				      const struct service *service,
				      const struct reflect_state *now, struct udp *udp,
				      const void *end, __u64 t2)
{
	__u32 *payload = (__u32 *)(udp + 1);
	__u16 checksum = udp->checksum, source = udp->source;
	int outcome = REPLIED, is_partial = 0;
	__u64 found;

	if (service->kind == KIND_ECHO && request->hops <= 1)
		return LOOPING;
	if (service->kind == KIND_ECHO) {
		found = digest(context, request->transport, UDP_HEADER + request->length);
		request->hash = found >> 16;
	} else {
		found = sum_bytes(context, request->transport, UDP_HEADER + request->length);
	}
	if (checksum && fold(request->pseudo + (__u16)found) != 0xffff) {
		/*
		 * Packets made on this machine have the sum of the pseudo header only: a card
		 * would complete it (CHECKSUM_PARTIAL, Documentation/networking/
		 * checksum-offloads.rst).
		 */
		if (checksum != fold(request->pseudo))
			return BAD_CHECKSUM;
		is_partial = 1;
	}
	switch (service->kind) {
	case KIND_STAMP:
		outcome = answer_stamp(context, request, service, now, (struct stamp *)payload, end,
				       &checksum, t2);
		break;
	case KIND_ROUNDTRIP:
		if (!is_within_limit(request, service, 1))
			return LIMITED;
		if ((void *)(payload + 6) > end)
			return MALFORMED;
		payload[5] = ROUNDTRIP_REPLY;
		checksum = exchanged(checksum, ROUNDTRIP_REQUEST, ROUNDTRIP_REPLY);
		break;
	default:
		outcome = answer_echo(request, service, payload, end);
	}
	if (outcome != REPLIED)
		return outcome;
	udp->source = udp->destination;
	udp->destination = source;
	if (is_partial && now->native) {
		/* The frame leaves without the socket buffer that knows of the partial sum. */
		udp->checksum = 0;
		found = sum_bytes(context, request->transport, UDP_HEADER + request->length);
		checksum = ~fold(request->pseudo + found);
	} else if (is_partial || !udp->checksum) {
		return REPLIED;
	}
	udp->checksum = checksum ? checksum : 0xffff;
	return REPLIED;
}

/* Answers an ICMP echo request; returns the outcome. */
static __always_inline int answer_icmp(struct xdp_md *context, struct request *request,
				       const struct service *service, struct icmp *icmp)
{
	__u16 *kind = (__u16 *)icmp, old = *kind, sum;

	sum = sum_bytes(context, request->transport, request->length);
	if (fold(request->pseudo + sum) != 0xffff)
		return BAD_CHECKSUM;
	if (!is_within_limit(request, service, 1))
		return LIMITED;
	icmp->type = request->is_ipv6 ? ECHO_REPLY_V6 : ECHO_REPLY;
	icmp->checksum = exchanged(icmp->checksum, old, *kind);
	return REPLIED;
}

/*
 * Answers the packet of a service; returns the outcome. Cheap checks (without checksums or tables)
 * come first.
 */
static __always_inline int answer(struct xdp_md *context, struct request *request,
				  const struct service *service,
				  const struct reflect_state *now, struct ethernet *frame,
				  const struct ipv4 *ip, struct udp *udp, const void *end)
{
	__u32 packets, header = request->is_ipv6 ? sizeof(struct ipv6) : sizeof(*ip);
	__u64 t2;

	if ((void *)frame + request->transport + request->length > end || request->length < 8)
		return MALFORMED;
	packets = datagrams(context, now, request->length);
	/* The last are longer than the interface can send. */
	if (packets > 1 || request->length > LENGTH ||
	    header + request->length > now->mtu)
		return leave(request, service, udp + 1, end, packets);
	if (service->kind != KIND_ICMP) {
		if (ntohs(udp->length) < UDP_HEADER || ntohs(udp->length) > request->length)
			return MALFORMED;
		request->length = ntohs(udp->length) - UDP_HEADER;
		request->pseudo += htons(UDP) + udp->length;
		if (is_malformed(request, service, (__u32 *)(udp + 1), end) ||
		    (!udp->checksum && request->is_ipv6))
			return MALFORMED;
	}
	t2 = service->kind == KIND_STAMP ? bpf_ktime_get_tai_ns() : 0;
	if (!request->is_ipv6 && header_sum(ip) != 0xffff)
		return BAD_CHECKSUM;
	if (is_loop(frame, request, now, service->kind))
		return LOOPING;
	if (service->kind == KIND_ICMP)
		return answer_icmp(context, request, service, (struct icmp *)udp);
	return answer_udp(context, request, service, now, udp, end, t2);
}

/*
 * Leaves a fragment, or a packet with IP options or extension headers, to the socket; returns the
 * verdict. The first fragment of a datagram spends the limit of its source.
 */
static __attribute__((noinline)) int leave_unusual(struct xdp_md *context, __u32 at, int is_ipv6)
{
	void *data = (void *)(unsigned long)context->data;
	const void *end = (void *)(unsigned long)context->data_end;
	__u32 first = 0, number, echo = is_ipv6 ? ECHO_REQUEST_V6 : ECHO_REQUEST, i;
	struct reflect_state *now = bpf_map_lookup_elem(&state, &first);
	struct ethernet *frame = data;
	struct request request = { .is_ipv6 = is_ipv6 };
	struct service_key key = {};
	struct reflect_counters *count;
	struct service *service;
	struct ipv4 *ip = data + at;
	struct ipv6 *ip6 = data + at;
	struct udp *udp;
	int outcome;

	if ((void *)(frame + 1) > end || !now || !is_to_interface(frame, now))
		return XDP_PASS;
	if (is_ipv6) {
		if ((void *)(ip6 + 1) > end)
			return XDP_PASS;
		__builtin_memcpy(key.address, ip6->destination, 16);
		__builtin_memcpy(request.from, ip6->source, 16);
		key.protocol = ip6->next;
		if (is_mapped(key.address))
			return XDP_PASS;
		at += sizeof(*ip6);
		for (i = 0; i < EXTENSIONS; i++) {
			struct extension *extension = data + (at & 0x3fff);

			if (key.protocol == UDP || key.protocol == ICMPV6)
				break;
			if ((void *)(extension + 1) > end)
				return XDP_PASS;
			switch (key.protocol) {
			case HOP_BY_HOP:
			case ROUTING:
			case DESTINATION_OPTIONS:
				at += (extension->length + 1) * 8;
				break;
			case FRAGMENT:
				if (extension->offset & FRAGMENT_OFFSET_V6)
					return XDP_PASS;
				at += sizeof(*extension);
				break;
			case AUTHENTICATION:
				at += (extension->length + 2) * 4;
				break;
			default:
				return XDP_PASS;
			}
			key.protocol = extension->next;
		}
	} else {
		if ((void *)(ip + 1) > end || ip->fragment & FRAGMENT_OFFSET)
			return XDP_PASS;
		key.address[2] = request.from[2] = htonl(0xffff);
		key.address[3] = ip->destination;
		request.from[3] = ip->source;
		key.protocol = ip->protocol;
		at += (ip->version_length & 15) * 4;
	}
	udp = data + (at & 0x3fff);
	if ((void *)(udp + 1) > end)
		return XDP_PASS;
	if (key.protocol == UDP) {
		key.port = udp->destination;
		request.from_port = udp->source;
		if (ntohs(udp->length) > UDP_HEADER)
			request.length = ntohs(udp->length) - UDP_HEADER;
	} else if (key.protocol != (is_ipv6 ? ICMPV6 : ICMP) || *(__u16 *)udp != echo) {
		return XDP_PASS;
	}
	service = bpf_map_lookup_elem(&services, &key);
	if (!service)
		return XDP_PASS;
	number = service->number;
	count = bpf_map_lookup_elem(&counters, &number);
	if (!count)
		return XDP_PASS;
	outcome = leave(&request, service, udp + 1, end, 1);
	count->of[outcome & 7] += 1;
	return outcome == TO_SOCKET ? XDP_PASS : XDP_DROP;
}

SEC("xdp")
int reflect_probes(struct xdp_md *context)
{
	void *data = (void *)(unsigned long)context->data;
	const void *end = (void *)(unsigned long)context->data_end;
	struct ethernet *frame = data;
	struct request request = { .transport = sizeof(*frame) };
	struct service_key key = {};
	struct reflect_counters *count;
	struct reflect_state *now;
	struct service *service;
	__u16 type = frame_type(frame, end);
	__u32 number, echo = ECHO_REQUEST, first = 0;
	int outcome;
	struct ipv4 *ip;
	struct ipv6 *ip6;
	struct udp *udp;

	if (type == htons(VLAN) || type == htons(VLAN_SERVICE)) {
		struct vlan *vlan = (struct vlan *)(frame + 1);

		if ((void *)(vlan + 1) > end)
			return XDP_PASS;
		type = vlan->type;
		request.transport += sizeof(*vlan);
	}
	ip = data + request.transport;
	ip6 = data + request.transport;
	if (type == htons(IPV4)) {
		if ((void *)(ip + 1) > end || ip->version_length < 0x45 ||
		    ip->version_length > 0x4f)
			return XDP_PASS;
		if (ip->version_length != 0x45 || ip->fragment & FRAGMENT_ANY)
			return leave_unusual(context, request.transport, 0);
		key.protocol = ip->protocol;
		if (key.protocol != UDP && key.protocol != ICMP)
			return XDP_PASS;
		key.address[2] = request.from[2] = htonl(0xffff);
		key.address[3] = ip->destination;
		request.from[3] = ip->source;
		request.hops = ip->hops;
		if (ntohs(ip->total) >= sizeof(*ip))
			request.length = ntohs(ip->total) - sizeof(*ip);
		if (key.protocol == UDP)
			request.pseudo = (__u64)ip->source + ip->destination;
		request.transport += sizeof(*ip);
		udp = (struct udp *)(ip + 1);
	} else if (type == htons(IPV6)) {
		if ((void *)(ip6 + 1) > end || (ip6->version & htonl(0xf0000000)) != htonl(0x60000000))
			return XDP_PASS;
		key.protocol = ip6->next;
		if (key.protocol != UDP && key.protocol != ICMPV6) {
			if (key.protocol == TCP)
				return XDP_PASS;
			return leave_unusual(context, request.transport, 1);
		}
		__builtin_memcpy(key.address, ip6->destination, 16);
		__builtin_memcpy(request.from, ip6->source, 16);
		/* An IPv4 address, which is no destination of IPv6. */
		if (is_mapped(key.address))
			return XDP_PASS;
		request.hops = ip6->hops;
		request.length = ntohs(ip6->payload);
		request.pseudo = address_sum(request.from) + address_sum(key.address);
		if (key.protocol == ICMPV6)
			request.pseudo += ip6->payload + htons(ICMPV6);
		request.is_ipv6 = 1;
		request.transport += sizeof(*ip6);
		udp = (struct udp *)(ip6 + 1);
		echo = ECHO_REQUEST_V6;
	} else {
		return XDP_PASS;
	}
	if ((void *)(udp + 1) > end)
		return XDP_PASS;
	if (key.protocol == UDP) {
		key.port = udp->destination;
		request.from_port = udp->source;
	} else if (*(__u16 *)udp != echo) {
		/* Type and code 0. */
		return XDP_PASS;
	}
	now = bpf_map_lookup_elem(&state, &first);
	if (!now || !is_to_interface(frame, now))
		return XDP_PASS;
	service = bpf_map_lookup_elem(&services, &key);
	if (!service)
		return XDP_PASS;
	number = service->number;
	count = bpf_map_lookup_elem(&counters, &number);
	if (!count)
		return XDP_PASS;
	outcome = answer(context, &request, service, now, frame, ip, udp, end);
	count->of[outcome & 7] += 1;
	if (outcome == TO_SOCKET)
		return XDP_PASS;
	if (outcome != REPLIED)
		return XDP_DROP;
	return_frame(frame);
	/*
	 * The TTL ends a loop of echoes. ICMP keeps the service and the traffic class, as in the kernel
	 * (icmp_reply(), net/ipv4/icmp.c; icmpv6_echo_reply(), net/ipv6/icmp.c).
	 */
	number = service->kind == KIND_ECHO ? request.hops - 1 : HOPS;
	/* Calls of global functions make the verifier forget the members of the request. */
	if (request.is_ipv6 && (void *)(ip6 + 1) <= end)
		return_ipv6(ip6, number, service->kind == KIND_ICMP ? TRAFFIC_CLASS : 0);
	else
		return_ipv4(ip, number, service->kind == KIND_ICMP ? ip->service : 0);
	return XDP_TX;
}

char licence[] SEC("license") = "Dual MIT/GPL";
