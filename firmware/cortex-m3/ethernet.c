/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "ethernet.h"

#include <string.h>

#include "board.h"
#include "clock.h"
#include "lwip/etharp.h"
#include "lwip/pbuf.h"

/* Ethernet header and the longest payload, without the frame check sequence. */
#define HEADER_LEN 14
#define MTU 1500
#define MAX_FRAME (HEADER_LEN + MTU)
/* In the FIFO, a received frame follows its length (2 bytes), which counts itself and the check sequence. */
#define LENGTH_LEN 2
#define FCS_LEN 4
/* Number of frames in the queue. */
#define QUEUE 8

/* A frame after its length, as in the FIFO. */
union fifo_frame {
	uint32_t words[(LENGTH_LEN + MAX_FRAME + 3) / 4];
	uint8_t bytes[LENGTH_LEN + MAX_FRAME];
};

#define MAX_WORDS (sizeof(union fifo_frame) / sizeof(uint32_t))

/* A frame in the queue. */
struct queued {
	uint64_t received;
	/* Without the length field and the check sequence. */
	uint16_t length;
	union fifo_frame frame;
};

/* Written by the handler at `head`, read by the main loop at `tail`; both count frames. */
static struct queued queue[QUEUE];
static volatile uint32_t head, tail;
static uint64_t received;

uint64_t ethernet_received(void)
{
	return received;
}

/* Reads one frame from the FIFO into the queue, which has room. It is lost if its length is wrong. */
static void read_frame(uint64_t now)
{
	uint32_t word = ETHERNET_DATA;
	uint32_t total = word & 0xffff;
	uint32_t words = (total + 3) / 4;
	struct queued *place = NULL;

	if (total >= LENGTH_LEN + HEADER_LEN + FCS_LEN && total <= LENGTH_LEN + MAX_FRAME + FCS_LEN)
		place = &queue[head % QUEUE];
	for (uint32_t i = 0; i < words; i++) {
		if (i > 0)
			word = ETHERNET_DATA;
		if (place && i < MAX_WORDS)
			place->frame.words[i] = word;
	}
	if (place) {
		place->received = now;
		place->length = (uint16_t)(total - LENGTH_LEN - FCS_LEN);
		__asm__ volatile("dmb" : : : "memory");
		head++;
	}
}

void ethernet_handler(void)
{
	uint64_t now = clock_now();
	uint32_t causes = ETHERNET_RIS;

	ETHERNET_IACK = causes;
	if (causes & (ETHERNET_INT_OVERRUN | ETHERNET_INT_RX_ERROR)) {
		ETHERNET_RCTL |= ETHERNET_RCTL_RESET_FIFO;
		return;
	}
	while (ETHERNET_NP & ETHERNET_NP_MASK) {
		if (head - tail == QUEUE) {
			/* The frames stay in the FIFO until ethernet_poll() makes room. */
			ETHERNET_IM &= ~ETHERNET_INT_RX;
			return;
		}
		read_frame(now);
		now = clock_now();
	}
}

/* Moves frames that wait in the FIFO because the queue was full. */
static void receive_resume(void)
{
	uint32_t state = interrupts_disable();

	if (!(ETHERNET_IM & ETHERNET_INT_RX)) {
		ETHERNET_IM |= ETHERNET_INT_RX;
		ethernet_handler();
	}
	interrupts_restore(state);
}

bool ethernet_is_pending(void)
{
	return head != tail;
}

bool ethernet_poll(struct netif *netif)
{
	const struct queued *oldest = &queue[tail % QUEUE];
	struct pbuf *buffer;

	if (!ethernet_is_pending())
		return false;
	received = oldest->received;
	buffer = pbuf_alloc(PBUF_RAW, oldest->length, PBUF_POOL);
	if (buffer) {
		pbuf_take(buffer, oldest->frame.bytes + LENGTH_LEN, oldest->length);
		if (netif->input(buffer, netif) != ERR_OK)
			pbuf_free(buffer);
	}
	__asm__ volatile("dmb" : : : "memory");
	tail++;
	receive_resume();
	return true;
}

/* Writes a frame with its Ethernet header to the FIFO. */
static err_t transmit(struct netif *netif, struct pbuf *buffer)
{
	static union fifo_frame frame;
	uint16_t payload;

	(void)netif;
	if (buffer->tot_len < HEADER_LEN || buffer->tot_len > MAX_FRAME)
		return ERR_BUF;
	/* The length of a sent frame counts the payload only. */
	payload = (uint16_t)(buffer->tot_len - HEADER_LEN);
	frame.bytes[0] = (uint8_t)payload;
	frame.bytes[1] = (uint8_t)(payload >> 8);
	pbuf_copy_partial(buffer, frame.bytes + LENGTH_LEN, buffer->tot_len, 0);
	/* The controller sends one frame at a time. */
	while (ETHERNET_TR & ETHERNET_TR_NEW)
		;
	for (uint32_t i = 0; i < (LENGTH_LEN + buffer->tot_len + 3u) / 4; i++)
		ETHERNET_DATA = frame.words[i];
	ETHERNET_TR = ETHERNET_TR_NEW;
	return ERR_OK;
}

err_t ethernet_start(struct netif *netif)
{
	const uint8_t *mac = netif->state;

	netif->name[0] = 'e';
	netif->name[1] = 'n';
	netif->mtu = MTU;
	netif->hwaddr_len = ETH_HWADDR_LEN;
	memcpy(netif->hwaddr, mac, ETH_HWADDR_LEN);
	netif->flags |= NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
	netif->output = etharp_output;
	netif->linkoutput = transmit;

	SYSCTL_RCGC2 |= SYSCTL_RCGC2_EMAC | SYSCTL_RCGC2_EPHY;
	(void)SYSCTL_RCGC2;
	(void)SYSCTL_RCGC2;
	ETHERNET_IM = 0;
	ETHERNET_IACK = ETHERNET_INT_ALL;
	ETHERNET_IA0 = (uint32_t)mac[0] | (uint32_t)mac[1] << 8 | (uint32_t)mac[2] << 16 | (uint32_t)mac[3] << 24;
	ETHERNET_IA1 = (uint32_t)mac[4] | (uint32_t)mac[5] << 8;
	ETHERNET_TCTL = ETHERNET_TCTL_DUPLEX | ETHERNET_TCTL_CRC | ETHERNET_TCTL_PAD | ETHERNET_TCTL_ENABLE;
	ETHERNET_RCTL = ETHERNET_RCTL_RESET_FIFO;
	ETHERNET_RCTL = ETHERNET_RCTL_BAD_CRC | ETHERNET_RCTL_ENABLE;
	ETHERNET_IM = ETHERNET_INT_RX | ETHERNET_INT_OVERRUN | ETHERNET_INT_RX_ERROR;
	NVIC_ENABLE(ETHERNET_IRQ / 32) = 1u << ETHERNET_IRQ % 32;
	return ERR_OK;
}
