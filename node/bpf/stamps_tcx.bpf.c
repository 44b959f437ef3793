// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/* Timestamps frames at tcx ingress and egress, in front of all other programs there. */
#include "dwell.bpf.h"

#define LOAD bpf_skb_load_bytes
#include "stamps_frame.bpf.h"

#define TCX(name, direction, hook)                                                           \
	SEC("tcx/" direction)                                                                \
	int name(struct __sk_buff *frame)                                                    \
	{                                                                                    \
		struct view view = VIEW(frame);                                              \
                                                                                             \
		stamp_frame(&view, hook, frame->ifindex);                                    \
		return TCX_NEXT;                                                             \
	}

TCX(rx_tcx, "ingress", HOOK_RX_TCX)
TCX(tx_tcx, "egress", HOOK_TX_TCX)

char licence[] SEC("license") = "Dual MIT/GPL";
