/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* lwIP's configuration: raw API without threads, IPv4, ICMP, UDP and TCP. */
#ifndef DWELL_LWIPOPTS_H
#define DWELL_LWIPOPTS_H

#define NO_SYS 1
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0
#define LWIP_STATS 0
#define LWIP_RAW 0
#define LWIP_IPV6 0
#define LWIP_DHCP 0
#define LWIP_DNS 0
#define LWIP_IGMP 0
#define IP_FORWARD 0
#define IP_FRAG 0
#define IP_REASSEMBLY 0

#define MEM_ALIGNMENT 4
#define MEM_SIZE (12 * 1024)
#define MEMP_NUM_PBUF 16
#define MEMP_NUM_UDP_PCB 4
#define MEMP_NUM_TCP_PCB 12
#define MEMP_NUM_TCP_PCB_LISTEN 1
#define MEMP_NUM_TCP_SEG 32
#define PBUF_POOL_SIZE 12
#define PBUF_POOL_BUFSIZE 600

/* A segment fits one pool buffer with its headers. */
#define TCP_MSS 536
#define TCP_WND (2 * TCP_MSS)
#define TCP_SND_BUF (4 * TCP_MSS)
#define TCP_SND_QUEUELEN 16
#define TCP_QUEUE_OOSEQ 0
#define LWIP_TCP_KEEPALIVE 1

#define IP_DEFAULT_TTL 64

#endif
