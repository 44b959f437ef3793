// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * A flight recorder of the processor that one thread runs on: scheduling, interrupts, softirqs,
 * idle states, frequencies, page faults and queueing of the thread's packets. Each processor
 * writes to a log of its own, whose oldest entries are overwritten. The program that loads this
 * maps the logs and reads them; nothing is woken.
 *
 * A program here delays what it observes. So events of other processors return early, and
 * tracepoints that every round trip passes are left out if the others suffice: reschedule_* (below
 * 1 us), napi_poll (part of a softirq), and cpu_idle on machines without a choice of idle states.
 */
#include "dwell.bpf.h"

/* Entries per processor; a power of two. */
#define LOG_LEN 8192

/* Kinds of entries; read by node/io/src/bpf/flight_recorder.rs. */
enum kind {
	SWITCH,	       /* a: previous thread, b: next thread, name of the one that is not watched */
	WAKING,	       /* of the watched thread */
	MIGRATE,       /* of the watched thread; a: new processor */
	IRQ_ENTRY,     /* a: number, name of the handler */
	IRQ_EXIT,
	VECTOR_ENTRY,  /* a: enum vector */
	VECTOR_EXIT,
	IPI_ENTRY,     /* name of the reason */
	IPI_EXIT,
	SOFTIRQ_ENTRY, /* a: number */
	SOFTIRQ_EXIT,
	IDLE,	       /* a: state, or ~0 on exit */
	FREQUENCY,     /* a: kHz */
	PAGE_FAULT,    /* of the watched thread */
	ENQUEUE,       /* of a packet by the watched thread; a: packet */
	DEQUEUE,       /* of such a packet; a: packet */
};

/* Interrupts of x86 that have tracepoints of their own. */
enum vector {
	LOCAL_TIMER,
	CALL_FUNCTION,
	CALL_FUNCTION_SINGLE,
	IRQ_WORK,
	THERMAL,
	PLATFORM_IPI,
};

/* Flags of a switch: how the previous thread left the processor. */
#define RUNNABLE 1
#define UNINTERRUPTIBLE 2

/* include/linux/sched.h */
#define TASK_UNINTERRUPTIBLE 2

struct entry {
	__u64 time;   /* CLOCK_MONOTONIC, ns */
	__u32 number; /* of this entry, from 1 on; written last */
	__u32 a;
	__u32 b;
	__u8 kind;
	__u8 flags;
	__u16 spare;
	char name[16];
};

struct log {
	__u64 written; /* number of entries so far */
	struct entry entries[LOG_LEN];
};

_Static_assert(sizeof(struct entry) == 40, "node/io/src/bpf/flight_recorder.rs reads 40 bytes");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* overridden: the number of processors */
	__type(key, __u32);
	__type(value, struct log);
} logs SEC(".maps");

/* The watched thread and the processor that it runs on, or ran on last. Set by the loader. */
struct {
	__u32 thread;
	__u32 processor;
} watch SEC(".data") = { ~0U, ~0U };

/* Packets that the watched thread has enqueued, by hash. */
#define QUEUED_LEN 256
__u64 queued[QUEUED_LEN];

struct task_struct {
	int pid;
	char comm[16];
} __attribute__((preserve_access_index));

struct irqaction {
	const char *name;
} __attribute__((preserve_access_index));

static __u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static __u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_probe_read_kernel)(void *to, __u32 length, const void *from) = (void *)113;
static long (*bpf_probe_read_kernel_str)(void *to, __u32 length, const void *from) = (void *)115;

static __always_inline int is_watched_processor(void)
{
	return bpf_get_smp_processor_id() == *(volatile __u32 *)&watch.processor;
}

static __always_inline int is_watched_thread(void)
{
	return (__u32)bpf_get_current_pid_tgid() == *(volatile __u32 *)&watch.thread;
}

/* Returns a new entry; the caller fills in a name, flags and at last the number. */
static __always_inline struct entry *append(__u8 kind, __u32 a, __u32 b, __u32 *number)
{
	__u32 processor = bpf_get_smp_processor_id();
	struct log *log = bpf_map_lookup_elem(&logs, &processor);
	struct entry *entry;

	if (!log)
		return 0;
	/* Atomic, because an interrupt may append between any two instructions. */
	*number = __sync_fetch_and_add(&log->written, 1);
	entry = &log->entries[*number & (LOG_LEN - 1)];
	entry->time = bpf_ktime_get_ns();
	entry->a = a;
	entry->b = b;
	entry->kind = kind;
	entry->flags = 0;
	entry->name[0] = 0;
	return entry;
}

static __always_inline void publish(struct entry *entry, __u32 number)
{
	*(volatile __u32 *)&entry->number = number + 1;
}

static __always_inline int plain(__u8 kind, __u32 a)
{
	__u32 number;
	struct entry *entry = append(kind, a, 0, &number);

	if (entry)
		publish(entry, number);
	return 0;
}

static __always_inline int named(__u8 kind, __u32 a, const char *name)
{
	__u32 number;
	struct entry *entry = append(kind, a, 0, &number);

	if (entry) {
		bpf_probe_read_kernel_str(entry->name, sizeof(entry->name), name);
		publish(entry, number);
	}
	return 0;
}

SEC("tp_btf/sched_switch")
int sched_switch(__u64 *args)
{
	struct task_struct *previous = (void *)args[1], *next = (void *)args[2], *other;
	__u32 from = previous->pid, to = next->pid, watched = *(volatile __u32 *)&watch.thread;
	struct entry *entry;
	__u32 number;

	if (to == watched)
		watch.processor = bpf_get_smp_processor_id();
	else if (!is_watched_processor())
		return 0;
	entry = append(SWITCH, from, to, &number);
	if (!entry)
		return 0;
	if (args[0] || !(__u32)args[3])
		entry->flags = RUNNABLE;
	else if (args[3] & TASK_UNINTERRUPTIBLE)
		entry->flags = UNINTERRUPTIBLE;
	other = to == watched ? previous : next;
	if (other->pid)
		bpf_probe_read_kernel(entry->name, sizeof(entry->name), other->comm);
	publish(entry, number);
	return 0;
}

SEC("tp_btf/sched_waking")
int sched_waking(__u64 *args)
{
	struct task_struct *task = (void *)args[0];

	if ((__u32)task->pid != *(volatile __u32 *)&watch.thread)
		return 0;
	return plain(WAKING, 0);
}

SEC("tp_btf/sched_migrate_task")
int sched_migrate_task(__u64 *args)
{
	struct task_struct *task = (void *)args[0];

	if ((__u32)task->pid != *(volatile __u32 *)&watch.thread)
		return 0;
	watch.processor = args[1];
	return plain(MIGRATE, args[1]);
}

SEC("tp_btf/irq_handler_entry")
int irq_handler_entry(__u64 *args)
{
	struct irqaction *action = (void *)args[1];

	return is_watched_processor() ? named(IRQ_ENTRY, args[0], action->name) : 0;
}

/* A program that appends an entry on the watched processor. */
#define ON_PROCESSOR(name, kind, a)                                                           \
	SEC("tp_btf/" #name)                                                                  \
	int name(__u64 *args)                                                                 \
	{                                                                                     \
		(void)args;                                                                   \
		return is_watched_processor() ? plain(kind, a) : 0;                           \
	}

ON_PROCESSOR(irq_handler_exit, IRQ_EXIT, args[0])
ON_PROCESSOR(softirq_entry, SOFTIRQ_ENTRY, args[0])
ON_PROCESSOR(softirq_exit, SOFTIRQ_EXIT, args[0])
ON_PROCESSOR(cpu_idle, IDLE, args[0])

ON_PROCESSOR(local_timer_entry, VECTOR_ENTRY, LOCAL_TIMER)
ON_PROCESSOR(local_timer_exit, VECTOR_EXIT, LOCAL_TIMER)
ON_PROCESSOR(call_function_entry, VECTOR_ENTRY, CALL_FUNCTION)
ON_PROCESSOR(call_function_exit, VECTOR_EXIT, CALL_FUNCTION)
ON_PROCESSOR(call_function_single_entry, VECTOR_ENTRY, CALL_FUNCTION_SINGLE)
ON_PROCESSOR(call_function_single_exit, VECTOR_EXIT, CALL_FUNCTION_SINGLE)
ON_PROCESSOR(irq_work_entry, VECTOR_ENTRY, IRQ_WORK)
ON_PROCESSOR(irq_work_exit, VECTOR_EXIT, IRQ_WORK)
ON_PROCESSOR(thermal_apic_entry, VECTOR_ENTRY, THERMAL)
ON_PROCESSOR(thermal_apic_exit, VECTOR_EXIT, THERMAL)
ON_PROCESSOR(x86_platform_ipi_entry, VECTOR_ENTRY, PLATFORM_IPI)
ON_PROCESSOR(x86_platform_ipi_exit, VECTOR_EXIT, PLATFORM_IPI)

/* Arm. */
SEC("tp_btf/ipi_entry")
int ipi_entry(__u64 *args)
{
	return is_watched_processor() ? named(IPI_ENTRY, 0, (const char *)args[0]) : 0;
}

ON_PROCESSOR(ipi_exit, IPI_EXIT, 0)

SEC("tp_btf/cpu_frequency")
int cpu_frequency(__u64 *args)
{
	if ((__u32)args[1] != *(volatile __u32 *)&watch.processor)
		return 0;
	return plain(FREQUENCY, args[0]);
}

SEC("tp_btf/page_fault_user")
int page_fault_user(__u64 *args)
{
	(void)args;
	return is_watched_thread() ? plain(PAGE_FAULT, 0) : 0;
}

SEC("tp_btf/page_fault_kernel")
int page_fault_kernel(__u64 *args)
{
	(void)args;
	return is_watched_thread() ? plain(PAGE_FAULT, 0) : 0;
}

/* Returns the address of a packet as a number, with which the verifier permits arithmetic. */
static __always_inline __u64 address(const __u64 *packet)
{
	__u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), packet);
	return number;
}

static __always_inline __u32 hash(__u64 packet)
{
	/* Structures of packets are aligned to cache lines. */
	return packet >> 6;
}

SEC("tp_btf/qdisc_enqueue")
int qdisc_enqueue(__u64 *args)
{
	__u64 packet;

	if (!is_watched_thread())
		return 0;
	packet = address(&args[2]);
	queued[hash(packet) & (QUEUED_LEN - 1)] = packet;
	return plain(ENQUEUE, hash(packet));
}

SEC("tp_btf/qdisc_dequeue")
int qdisc_dequeue(__u64 *args)
{
	__u64 packet = address(&args[3]), *slot = &queued[hash(packet) & (QUEUED_LEN - 1)];

	if (!packet || *slot != packet)
		return 0;
	*slot = 0;
	return plain(DEQUEUE, hash(packet));
}

char licence[] SEC("license") = "Dual MIT/GPL";
