/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * Definitions that the programs share with node/io/src/bpf, and the kernel structures they read.
 * There are no includes, so that an object depends on these files and the compiler only.
 */
#ifndef DWELL_BPF_H
#define DWELL_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;

/* Hook of an event: index into POINTS in node/io/src/bpf/event.rs. */
enum hook {
	HOOK_RX_DRIVER,
	HOOK_RX_TCX,
	HOOK_PRE_ROUTING,
	HOOK_POST_ROUTING,
	HOOK_TX_TCX,
};

/* Packet bytes after the ports in an event: enough for the packet id of every format. */
#define HEAD 24

/*
 * A packet at a hook. Native byte order, except for data copied from the packet: ports, head and
 * addresses. An IPv4 event ends after 8 bytes of addresses: its 56 bytes fill a cache line with the
 * 8 bytes of the ring buffer's header.
 */
struct event {
	__u64 tai;		/* CLOCK_TAI, ns */
	__u32 interface;	/* incoming one; at hooks on the way out, outgoing one */
	__u16 length;		/* bytes from the transport header on, by the IP header */
	__u8 hook;
	__u8 protocol;
	__u16 ports[2];		/* source, destination; ICMP: type and code, identifier */
	__u8 family;		/* 4 or 6 */
	__u8 head_length;	/* valid bytes of head */
	__u16 spare;
	__u8 head[HEAD];	/* UDP: payload. TCP, ICMP: from the sequence number on */
	__u8 addresses[32];	/* source, destination: 4 or 16 bytes each */
};

#define EVENT_IPV4 56

_Static_assert(sizeof(struct event) == 80, "node/io/src/bpf/event.rs reads 80 bytes");
_Static_assert(__builtin_offsetof(struct event, addresses) + 8 == EVENT_IPV4, "IPv4 ends early");

/* Packets that cause events; written by node/io/src/bpf/tracer.rs. */
struct filter {
	__u8 protocol;	/* UDP, TCP; ICMP: echoes, including ICMPv6 */
	__u8 family;	/* of the host, 4 or 6; 0: any host */
	__u16 port;	/* source or destination, in network order; 0: any */
	__u32 host[4];	/* source or destination, in network order */
};

_Static_assert(sizeof(struct filter) == 20, "node/io/src/bpf/tracer.rs writes 20 bytes");

/* Maximum number of addresses that a relay listens on. */
#define LISTENS 8

/* Configuration of relay.bpf.c; written by node/io/src/bpf/relay.rs. Addresses and ports are in
 * network order, except for first_port. */
struct relay {
	__u64 idle;	   /* ns after which a flow's port may be reused */
	__u32 to;
	__u32 own;	   /* source address of packets to `to` */
	__u32 flows;	   /* number of ports from first_port on */
	__u16 listen_port;
	__u16 to_port;
	__u16 first_port;
	__u16 cleared;	   /* clear UDP checksums, which may be incomplete */
	__u32 listens;	   /* number of used entries in listen */
	__u32 listen[LISTENS];
};

/* A client of the relay; last is CLOCK_MONOTONIC of its last packet, 0 if unused. */
struct relay_flow {
	__u64 last;
	__u64 packets;
	__u32 client;
	__u32 listen;	/* address it sends to */
	__u16 port;
	__u16 spare[3];
};

struct relay_counters {
	__u64 forward;
	__u64 backward;
	__u64 flows;
	__u64 evicted;
	__u64 no_way;
};

_Static_assert(sizeof(struct relay) == 64, "node/io/src/bpf/relay.rs writes 64 bytes");
_Static_assert(sizeof(struct relay_flow) == 32, "node/io/src/bpf/relay.rs reads 32 bytes");
_Static_assert(sizeof(struct relay_counters) == 40, "node/io/src/bpf/relay.rs reads 40 bytes");

/* Packet headers (RFC 791, 8200, 768). */
struct ipv4 {
	__u8 version_length;
	__u8 service;
	__u16 total;
	__u16 id;
	__u16 fragment;
	__u8 hops;
	__u8 protocol;
	__u16 checksum;
	__u32 source;
	__u32 destination;
};

struct ipv6 {
	__u32 version;
	__u16 payload;
	__u8 next;
	__u8 hops;
	__u32 source[4];
	__u32 destination[4];
};

struct udp {
	__u16 source;
	__u16 destination;
	__u16 length;
	__u16 checksum;
};

/* include/uapi/linux/in.h, in6.h, netfilter.h, bpf.h */
#define ICMP 1
#define TCP 6
#define UDP 17
#define ICMPV6 58
#define NF_ACCEPT 1
#define TCX_NEXT (-1)
#define XDP_PASS 2
#define XDP_REDIRECT 4
#define BPF_RB_NO_WAKEUP 1
#define BPF_F_MMAPABLE (1 << 10)
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_RINGBUF 27

/* Annotations by which libbpf finds programs, maps and kernel functions. */
#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __ksym __attribute__((section(".ksyms")))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

#define ntohs(x) __builtin_bswap16(x)
#define htons(x) __builtin_bswap16(x)
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "objects are little-endian");

/* Helpers by their numbers (include/uapi/linux/bpf.h). */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value,
				   __u64 flags) = (void *)2;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_redirect)(__u32 interface, __u64 flags) = (void *)23;
static long (*bpf_skb_load_bytes)(const void *frame, __u32 offset, void *to,
				  __u32 length) = (void *)26;
static void *(*bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static long (*bpf_xdp_load_bytes)(const void *frame, __u32 offset, void *to,
				  __u32 length) = (void *)189;
static __u64 (*bpf_ktime_get_tai_ns)(void) = (void *)208;

/* First members of contexts (include/uapi/linux/bpf.h); the kernel rewrites access to them. */
struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
};

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
};

/* struct bpf_fib_lookup, for IPv4 (include/uapi/linux/bpf.h). */
struct bpf_fib_lookup {
	__u8 family;
	__u8 l4_protocol;
	__u16 sport;
	__u16 dport;
	__u16 total;
	__u32 interface;
	__u32 service;
	__u32 ipv4_from;
	__u32 unused_from[3];
	__u32 ipv4_to;
	__u32 unused_to[3];
	__u32 vlan;
	__u8 mac_from[6];
	__u8 mac_to[6];
};

_Static_assert(sizeof(struct bpf_fib_lookup) == 64, "as the kernel has it");

static long (*bpf_fib_lookup)(void *context, struct bpf_fib_lookup *way, int size,
			      __u32 flags) = (void *)69;

/* Members of kernel structures that are read; libbpf relocates them for the running kernel. */
struct net_device {
	int ifindex;
} __attribute__((preserve_access_index));

struct nf_hook_state {
	struct net_device *in;
	struct net_device *out;
} __attribute__((preserve_access_index));

struct sk_buff {
	unsigned int len;
} __attribute__((preserve_access_index));

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
} __attribute__((preserve_access_index));

/* Kernel functions (net/core/filter.c, kernel/bpf/helpers.c), since Linux 6.4. */
struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags,
			       struct bpf_dynptr *packet) __ksym;
extern void *bpf_dynptr_slice(const struct bpf_dynptr *packet, __u32 offset, void *buffer,
			      __u32 buffer__szk) __ksym;
static long (*bpf_dynptr_read)(void *to, __u32 length, const struct bpf_dynptr *packet,
			       __u32 offset, __u64 flags) = (void *)201;

#endif
