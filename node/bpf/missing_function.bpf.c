// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/* Calls a function that no kernel has, as a program does on a kernel that is too old for it. */
#include "dwell.bpf.h"

extern int dwell_no_such_function(struct xdp_md *frame) __ksym;

SEC("xdp")
int missing_function(struct xdp_md *frame)
{
	return dwell_no_such_function(frame);
}

char licence[] SEC("license") = "Dual MIT/GPL";
