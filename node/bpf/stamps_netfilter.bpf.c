// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * Timestamps packets at PRE_ROUTING and POST_ROUTING. Needs Linux 6.4: netfilter programs, and the
 * kernel functions by which they read packets.
 */
#include "dwell.bpf.h"

struct view {
	struct bpf_dynptr packet;
};

static __always_inline const void *slice(struct view *view, __u32 at, void *buffer, __u32 size)
{
	return bpf_dynptr_slice(&view->packet, at, buffer, size);
}

#define fast_slice slice

static __always_inline long copy(struct view *view, __u32 at, void *to, __u32 size)
{
	return bpf_dynptr_read(to, size, &view->packet, at, 0);
}

#include "stamps.bpf.h"

/* A program for one address family; `way` is the incoming or the outgoing device. */
#define NETFILTER(name, stamp, hook, way)                                                    \
	SEC("netfilter")                                                                     \
	int name(struct bpf_nf_ctx *context)                                                 \
	{                                                                                    \
		struct view view;                                                            \
                                                                                             \
		if (!bpf_dynptr_from_skb((struct __sk_buff *)context->skb, 0, &view.packet)) \
			stamp(&view, 0, hook, context->state->way->ifindex);                 \
		return NF_ACCEPT;                                                            \
	}

NETFILTER(pre_routing4, stamp4, HOOK_PRE_ROUTING, in)
NETFILTER(pre_routing6, stamp6, HOOK_PRE_ROUTING, in)
NETFILTER(post_routing4, stamp4, HOOK_POST_ROUTING, out)
NETFILTER(post_routing6, stamp6, HOOK_POST_ROUTING, out)

char licence[] SEC("license") = "Dual MIT/GPL";
