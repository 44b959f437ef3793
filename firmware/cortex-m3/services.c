/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "services.h"

#include "../protocol/roundtrip.h"
#include "../protocol/stamp.h"
#include "../protocol/text.h"
#include "clock.h"
#include "console.h"
#include "ethernet.h"
#include "lwip/ip.h"
#include "lwip/tcp.h"
#include "lwip/udp.h"

/* Longest datagram: IP and UDP headers fill the rest of the MTU. */
#define MAX_DATAGRAM (1500 - 20 - 8)
/* A connection that is silent for this long is asked whether it is alive. */
#define KEEPALIVE_IDLE_MS 60000u
#define KEEPALIVE_INTERVAL_MS 10000u
#define KEEPALIVE_COUNT 3

/* Whether the sender's port is one whose service might answer a reply: echo, chargen, STAMP, this one. */
static bool may_loop(uint16_t from, uint16_t to)
{
	return from == 0 || from == 7 || from == 19 || from == STAMP_PORT || from == to;
}

/* Copies a datagram out of its buffers. Returns its length, 0 if it is too long or must not be answered. */
static size_t take_datagram(const struct udp_pcb *pcb, struct pbuf *buffer, uint16_t port, uint8_t *datagram)
{
	const ip4_addr_t *to = ip4_current_dest_addr();

	if (may_loop(port, pcb->local_port) || ip4_addr_isbroadcast(to, ip_current_netif()) ||
	    ip4_addr_ismulticast(to) || buffer->tot_len > MAX_DATAGRAM)
		return 0;
	return pbuf_copy_partial(buffer, datagram, buffer->tot_len, 0);
}

/* Sends a datagram. Without memory for it, it is lost like any packet. */
static void send_datagram(struct udp_pcb *pcb, const uint8_t *datagram, size_t length, const ip_addr_t *to,
			  uint16_t port)
{
	struct pbuf *buffer = pbuf_alloc(PBUF_TRANSPORT, (uint16_t)length, PBUF_RAM);

	if (!buffer)
		return;
	if (pbuf_take(buffer, datagram, (uint16_t)length) == ERR_OK)
		udp_sendto(pcb, buffer, to, port);
	pbuf_free(buffer);
}

static uint8_t datagram[MAX_DATAGRAM];

static void stamp_receive(void *context, struct udp_pcb *pcb, struct pbuf *buffer, const ip_addr_t *from,
			  uint16_t port)
{
	size_t length = take_datagram(pcb, buffer, port, datagram);
	uint8_t ttl = IPH_TTL(ip4_current_header());

	(void)context;
	pbuf_free(buffer);
	if (!stamp_answer(datagram, length, stamp_ntp(ethernet_received()), CLOCK_RESOLUTION_NS, ttl))
		return;
	stamp_finish(datagram, stamp_ntp(clock_now()));
	send_datagram(pcb, datagram, length, from, port);
}

/* Answers the round-trip message and request/acknowledge: no datagram is a request of both. */
static void probe_receive(void *context, struct udp_pcb *pcb, struct pbuf *buffer, const ip_addr_t *from,
			  uint16_t port)
{
	size_t length = take_datagram(pcb, buffer, port, datagram);
	enum text_request request = text_datagram(datagram, length);
	uint8_t reply[TEXT_TIMED_REPLY_LEN];

	(void)context;
	pbuf_free(buffer);
	if (request != TEXT_NONE) {
		length = text_reply(request, ethernet_received(), clock_now(), reply);
		send_datagram(pcb, reply, length, from, port);
	} else if (roundtrip_answer(datagram, length)) {
		send_datagram(pcb, datagram, length, from, port);
	}
}

/* Connections of request/acknowledge over TCP. */
static struct connection {
	bool is_used;
	struct text_stream stream;
} connections[MEMP_NUM_TCP_PCB];

/*
 * Replies to one piece of a stream. A piece is at most the window, a request at least 7 bytes, and one of
 * them may have begun in an earlier piece.
 */
static struct {
	size_t length;
	uint8_t bytes[(TCP_WND / 7 + 1) * TEXT_REPLY_LEN + TEXT_TIMED_REPLY_LEN];
} replies;

static void append_reply(enum text_request request)
{
	if (sizeof(replies.bytes) - replies.length >= TEXT_TIMED_REPLY_LEN)
		replies.length +=
			text_reply(request, ethernet_received(), clock_now(), replies.bytes + replies.length);
}

/* Answers the requests in a buffer. Returns false if there is no memory for the replies. */
static bool answer_piece(struct tcp_pcb *pcb, const struct pbuf *buffer, struct text_stream *stream)
{
	replies.length = 0;
	for (const struct pbuf *part = buffer; part; part = part->next)
		for (uint16_t i = 0; i < part->len; i++)
			append_reply(text_take(stream, ((const uint8_t *)part->payload)[i]));
	append_reply(text_piece_end(stream));
	if (replies.length == 0)
		return true;
	if (replies.length > tcp_sndbuf(pcb) ||
	    tcp_write(pcb, replies.bytes, (uint16_t)replies.length, TCP_WRITE_FLAG_COPY) != ERR_OK)
		return false;
	tcp_output(pcb);
	return true;
}

static err_t stream_close(struct tcp_pcb *pcb, struct connection *connection)
{
	connection->is_used = false;
	tcp_arg(pcb, NULL);
	tcp_recv(pcb, NULL);
	tcp_err(pcb, NULL);
	if (tcp_close(pcb) == ERR_OK)
		return ERR_OK;
	tcp_abort(pcb);
	return ERR_ABRT;
}

static err_t stream_receive(void *context, struct tcp_pcb *pcb, struct pbuf *buffer, err_t error)
{
	struct connection *connection = context;
	struct text_stream stream = connection->stream;

	(void)error;
	if (!buffer)
		return stream_close(pcb, connection);
	/* lwIP passes a refused buffer again later; until then the window stops the sender. */
	if (!answer_piece(pcb, buffer, &stream))
		return ERR_MEM;
	connection->stream = stream;
	tcp_recved(pcb, buffer->tot_len);
	pbuf_free(buffer);
	return ERR_OK;
}

/* Called after lwIP has freed the connection. */
static void stream_error(void *context, err_t error)
{
	struct connection *connection = context;

	(void)error;
	connection->is_used = false;
}

static err_t stream_accept(void *context, struct tcp_pcb *pcb, err_t error)
{
	(void)context;
	if (error != ERR_OK || !pcb)
		return ERR_VAL;
	for (size_t i = 0; i < MEMP_NUM_TCP_PCB; i++) {
		struct connection *connection = &connections[i];

		if (connection->is_used)
			continue;
		*connection = (struct connection){ .is_used = true };
		tcp_nagle_disable(pcb);
		ip_set_option(pcb, SOF_KEEPALIVE);
		pcb->keep_idle = KEEPALIVE_IDLE_MS;
		pcb->keep_intvl = KEEPALIVE_INTERVAL_MS;
		pcb->keep_cnt = KEEPALIVE_COUNT;
		tcp_arg(pcb, connection);
		tcp_recv(pcb, stream_receive);
		tcp_err(pcb, stream_error);
		return ERR_OK;
	}
	/* lwIP aborts the connection. */
	return ERR_MEM;
}

static void listen_udp(uint16_t port, udp_recv_fn receive)
{
	struct udp_pcb *pcb = udp_new();

	if (!pcb || udp_bind(pcb, IP_ANY_TYPE, port) != ERR_OK)
		restart("restart: cannot open a UDP port");
	udp_recv(pcb, receive, NULL);
}

static void listen_tcp(uint16_t port, tcp_accept_fn accept)
{
	struct tcp_pcb *pcb = tcp_new();

	if (!pcb || tcp_bind(pcb, IP_ANY_TYPE, port) != ERR_OK || !(pcb = tcp_listen(pcb)))
		restart("restart: cannot open a TCP port");
	tcp_accept(pcb, accept);
}

void services_start(void)
{
	listen_udp(STAMP_PORT, stamp_receive);
	listen_udp(PROBE_PORT, probe_receive);
	listen_tcp(PROBE_PORT, stream_accept);
}
