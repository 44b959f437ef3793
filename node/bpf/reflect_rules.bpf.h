/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * Decides which requests get a reply: rate limit and loop rules as in core/engine/src/reflector, in
 * tables of fixed size. Two processors may write one entry at once: that loses a count, never a bound.
 */
#ifndef REFLECT_RULES_BPF_H
#define REFLECT_RULES_BPF_H

#include "reflect.bpf.h"

/* Entries per set, as in core/engine/src/reflector/table.rs. A new key replaces the entry of lowest
 * rank. */
#define WAYS 4

#define SOURCE_SETS 4096
#define PREFIX_SETS 512
#define REQUEST_SETS 1024
#define SILENCED_SETS 256

/* limit.rs */
#define BURST 100000000ULL
#define MIN_MEMORY 1500000000ULL
#define MEMORY_PACKETS 15
#define PREFIX_SHARE 256

/* loops.rs */
#define MAX_IDENTICAL 1000
#define COUNT_INTERVAL 1000000000ULL
#define SILENCE_DURATION 60000000000ULL

/* Time at which the budget of a source or prefix is full again, or a source is answered again. */
struct until {
	__u64 key;
	__u64 at;
};

struct until_set {
	struct until way[WAYS];
};

/* Identical requests since the first of the current window. */
struct count {
	__u64 key;
	__u64 since;
	__u64 requests;
};

struct count_set {
	struct count way[WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOURCE_SETS);
	__type(key, __u32);
	__type(value, struct until_set);
} sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PREFIX_SETS);
	__type(key, __u32);
	__type(value, struct until_set);
} prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REQUEST_SETS);
	__type(key, __u32);
	__type(value, struct count_set);
} requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SILENCED_SETS);
	__type(key, __u32);
	__type(value, struct until_set);
} silenced SEC(".maps");

/*
 * Returns the hash of the source address and port at a service; never 0. Service and port are between
 * the halves of the address: a sender cannot choose the bits that would cancel those of the first half.
 */
static __always_inline __u64 source_hash(const struct request *request, __u32 service)
{
	__u64 hash = mixed(reflect.seed, (__u64)request->from[0] << 32 | request->from[1]);

	hash = mixed(hash, (__u64)service << 16 | request->from_port);
	return mixed(hash, (__u64)request->from[2] << 32 | request->from[3]) | 1;
}

/* Returns the set number of a key. The low bit of keys is set. */
static __always_inline __u32 set_of(__u64 key, __u32 sets)
{
	return key >> 32 & (sets - 1);
}

static __always_inline int is_mapped(const __u32 *address)
{
	return !address[0] && !address[1] && address[2] == htonl(0xffff);
}

/* Whether the address is loopback, private, unique local or link-local. */
static __always_inline int is_local(const __u32 *address)
{
	__u32 high = ntohl(address[0]), v4 = ntohl(address[3]);

	if (is_mapped(address))
		return v4 >> 24 == 127 || v4 >> 24 == 10 || v4 >> 20 == 0xac1 ||
		       v4 >> 16 == 0xc0a8 || v4 >> 16 == 0xa9fe;
	return high >> 25 == 0x7e || high >> 22 == 0x3fa ||
	       (!address[0] && !address[1] && !address[2] && v4 == 1);
}

/* Whether no single host has this address: multicast, broadcast, unspecified. */
static __always_inline int is_group(const __u32 *address)
{
	__u32 v4 = ntohl(address[3]);

	if (is_mapped(address))
		return v4 >> 28 >= 14 || v4 >> 24 == 0;
	return (address[0] & 0xff) == 0xff ||
	       (!address[0] && !address[1] && !address[2] && !address[3]);
}

/* Whether the address is 127.0.0.0/8 or ::1, which no packet of a link may have (RFC 1122 3.2.1.3,
 * RFC 4291 2.5.3). */
static __always_inline int is_loopback(const __u32 *address)
{
	if (is_mapped(address))
		return (address[3] & 0xff) == 127;
	return !address[0] && !address[1] && !address[2] && address[3] == htonl(1);
}

/* Spends packets of a budget, if it suffices: the generic cell rate algorithm. */
static __always_inline int spend(__u64 *full, __u64 gap, __u32 packets, __u64 now)
{
	__u64 burst = gap > BURST ? gap : BURST;
	__u64 next = (*full > now ? *full : now) + gap * packets;

	if (next - now > burst)
		return 0;
	*full = next;
	return 1;
}

/* Spends packets of the budget that new sources of a /24 or /56 share. */
static __always_inline int spend_prefix(const struct request *request, __u64 gap, __u32 packets,
					__u64 now)
{
	__u64 prefix = is_mapped(request->from)
			       ? request->from[3] & 0x00ffffff
			       : (__u64)request->from[0] << 32 | (request->from[1] & 0x00ffffff);
	__u64 key = mixed(reflect.seed, prefix) | 1;
	__u32 number = set_of(key, PREFIX_SETS), i;
	struct until_set *set = bpf_map_lookup_elem(&prefixes, &number);
	struct until *oldest;
	__u64 full = now;

	if (!set)
		return 0;
	gap = gap / PREFIX_SHARE ? gap / PREFIX_SHARE : 1;
	oldest = &set->way[0];
	for (i = 0; i < WAYS; i++) {
		if (set->way[i].key == key)
			return spend(&set->way[i].at, gap, packets, now);
		if (set->way[i].at < oldest->at)
			oldest = &set->way[i];
	}
	if (!spend(&full, gap, packets, now))
		return 0;
	oldest->key = key;
	oldest->at = full;
	return 1;
}

/*
 * Whether the source may get replies to these packets now; spends its budget if so. A source that
 * evicts a recently seen one also spends the budget of its prefix. Packets for the socket spend the
 * same budget as those that the program answers.
 */
__attribute__((noinline)) int is_within_limit(const struct request *request,
					      const struct service *service, __u32 packets)
{
	__u64 gap, memory, key, now, full;
	struct until_set *set;
	struct until *oldest;
	__u32 number, i;

	if (!request || !service)
		return 0;
	gap = is_local(request->from) ? service->local_gap : service->global_gap;
	if (!gap)
		return 1;
	memory = gap * MEMORY_PACKETS > MIN_MEMORY ? gap * MEMORY_PACKETS : MIN_MEMORY;
	key = source_hash(request, service->number);
	number = set_of(key, SOURCE_SETS);
	full = now = bpf_ktime_get_ns();
	set = bpf_map_lookup_elem(&sources, &number);
	if (!set)
		return 0;
	oldest = &set->way[0];
	for (i = 0; i < WAYS; i++) {
		if (set->way[i].key == key)
			return spend(&set->way[i].at, gap, packets, now);
		if (set->way[i].at < oldest->at)
			oldest = &set->way[i];
	}
	if (!spend(&full, gap, packets, now))
		return 0;
	if (oldest->key && oldest->at + memory > now &&
	    !spend_prefix(request, gap, packets, now))
		return 0;
	oldest->key = key;
	oldest->at = full;
	return 1;
}

/* Silences a source. */
static __always_inline void silence(__u64 source, __u64 now)
{
	__u32 number = set_of(source, SILENCED_SETS), i;
	struct until_set *set = bpf_map_lookup_elem(&silenced, &number);
	struct until *oldest;

	if (!set)
		return;
	oldest = &set->way[0];
	for (i = 0; i < WAYS; i++) {
		if (set->way[i].key == source) {
			oldest = &set->way[i];
			break;
		}
		if (set->way[i].at < oldest->at)
			oldest = &set->way[i];
	}
	oldest->key = source;
	oldest->at = now + SILENCE_DURATION;
}

/*
 * Whether the source sent more than 1,000 identical requests within a second, less than 60 s ago.
 * Counts this request.
 */
static __always_inline int is_silenced(const struct request *request, __u32 service, __u64 now)
{
	__u64 source = source_hash(request, service);
	__u64 key = mixed(source, request->hash) | 1, lowest_rank = ~0ULL;
	__u32 number = set_of(source, SILENCED_SETS), i;
	struct until_set *silent = bpf_map_lookup_elem(&silenced, &number);
	struct count_set *set;
	struct count *lowest;

	if (!silent)
		return 1;
	for (i = 0; i < WAYS; i++)
		if (silent->way[i].key == source && silent->way[i].at > now)
			return 1;
	number = set_of(key, REQUEST_SETS);
	set = bpf_map_lookup_elem(&requests, &number);
	if (!set)
		return 1;
	lowest = &set->way[0];
	for (i = 0; i < WAYS; i++) {
		struct count *count = &set->way[i];
		__u64 rank = now - count->since < COUNT_INTERVAL ? count->requests : 0;

		if (count->key == key) {
			if (now - count->since >= COUNT_INTERVAL) {
				count->since = now;
				count->requests = 1;
				return 0;
			}
			count->requests += 1;
			if (count->requests <= MAX_IDENTICAL)
				return 0;
			/* After the silence, counting starts again. */
			count->requests = 0;
			silence(source, now);
			return 1;
		}
		if (rank < lowest_rank) {
			lowest_rank = rank;
			lowest = count;
		}
	}
	lowest->key = key;
	lowest->since = now;
	lowest->requests = 1;
	return 0;
}

#endif
