// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * The program of reflect.bpf.c for kernels before Linux 6.2 and without type information (BTF). It
 * cannot see that the kernel merged datagrams.
 */
#define WITHOUT_KERNEL_TYPES
#include "reflect.bpf.c"
