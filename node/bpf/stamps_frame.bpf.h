/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT */
/*
 * Reads Ethernet frames without kernel functions or kernel types, so that old kernels and kernels
 * without BTF load the programs. Included with LOAD defined: the helper that copies bytes of a frame
 * which are not contiguous.
 */
#ifndef STAMPS_FRAME_BPF_H
#define STAMPS_FRAME_BPF_H

#include "dwell.bpf.h"

/* A frame: its context, and the part of it that is contiguous. */
struct view {
	void *context;
	const __u8 *data;
	const __u8 *end;
};

#define VIEW(frame)                                                                          \
	{ frame, (const __u8 *)(unsigned long)(frame)->data,                                 \
	  (const __u8 *)(unsigned long)(frame)->data_end }

static __always_inline const void *in_place(const struct view *view, __u32 at, __u32 size)
{
	const __u8 *from = view->data + at;

	/* The verifier must see one addition, and the comparison of its result. */
	asm volatile("" : "+r"(from));
	return from + size <= view->end ? from : 0;
}

/* A copy would be on the stack, where the head of a packet could not be read in words. */
#define fast_slice(view, at, buffer, size) in_place(view, at, size)

static __always_inline const void *slice(const struct view *view, __u32 at, void *buffer,
					 __u32 size)
{
	const void *from = in_place(view, at, size);

	if (from)
		return from;
	return LOAD(view->context, at, buffer, size) ? 0 : buffer;
}

/* An event has room for 32 bytes from its head on. Kernels before 6.2 need proof that `size` is not 0. */
#define MAX_COPY 32

static __always_inline long copy(const struct view *view, __u32 at, void *to, __u32 size)
{
	_Static_assert(HEAD <= MAX_COPY, "the mask below changes no size");
	_Static_assert(__builtin_offsetof(struct event, head) + MAX_COPY <= EVENT_IPV4, "the event has room");
	asm volatile("" : "+r"(size));
	size = ((size - 1) & (MAX_COPY - 1)) + 1;
	return LOAD(view->context, at, to, size);
}

#include "stamps.bpf.h"

/* An untagged Ethernet frame. */
static __always_inline void stamp_frame(struct view *packet, enum hook hook, __u32 interface)
{
	__u8 buffer[16];
	const __u8 *frame = slice(packet, 0, buffer, sizeof(buffer));

	if (!frame)
		return;
	if (frame[12] == 0x08 && frame[13] == 0x00 && frame[14] >> 4 == 4)
		stamp4(packet, 14, hook, interface);
	else if (frame[12] == 0x86 && frame[13] == 0xdd && frame[14] >> 4 == 6)
		stamp6(packet, 14, hook, interface);
}

#endif
