// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/* Reads memory without a bounds check: the kernel must refuse it and give the reason. */
#include "dwell.bpf.h"

SEC("xdp")
int refused(struct xdp_md *frame)
{
	return *(__u8 *)(unsigned long)frame->data;
}

char licence[] SEC("license") = "Dual MIT/GPL";
