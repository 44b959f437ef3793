// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/* Timestamps frames in the receiving driver, or just after it. */
#include "dwell.bpf.h"

#define LOAD bpf_xdp_load_bytes
#include "stamps_frame.bpf.h"

SEC("xdp")
int rx_driver(struct xdp_md *frame)
{
	struct view view = VIEW(frame);

	stamp_frame(&view, HOOK_RX_DRIVER, frame->ingress_ifindex);
	return XDP_PASS;
}

char licence[] SEC("license") = "Dual MIT/GPL";
