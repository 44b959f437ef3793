// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/* Reads memory that it has not looked at the end of: a kernel must refuse it, and say why. */
#include "dwell.bpf.h"

SEC("xdp")
int refused(struct xdp_md *frame)
{
	return *(__u8 *)(unsigned long)frame->data;
}

char licence[] SEC("license") = "Dual MIT/GPL";
