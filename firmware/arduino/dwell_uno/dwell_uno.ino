/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Request/acknowledge of Chung 2021 over UDP and TCP on an Arduino Uno with Ethernet Shield 2 (W5500), with
 * the time of the device in the packet (docs/firmware.md). The loop polls all sockets and waits for none.
 */
#include "text.h"
#include "w5500.h"

static const uint16_t PORT = 7100;
static const uint8_t UDP_SOCKET = 0;

static const struct w5500_addresses ADDRESSES = {
	{ 0, 0, 0, 0 },
	{ 255, 255, 255, 0 },
	{ 0x02, 0x64, 0x77, 0x6c, 0x75, 0x6e },
	{ 192, 168, 1, 78 },
};

/* Timer 1 counts at 2 MHz; its 16 bits are extended over the wrap, every 32.8 ms. */
static const uint16_t TICK_NS = 500;
static volatile uint32_t clock_wraps;

ISR(TIMER1_OVF_vect)
{
	clock_wraps++;
}

static void clock_begin(void)
{
	TCCR1A = 0;
	TCCR1B = 1 << CS11;
	TCNT1 = 0;
	TIFR1 = 1 << TOV1;
	TIMSK1 = 1 << TOIE1;
}

/* Returns nanoseconds since clock_begin(). */
static uint64_t clock_now(void)
{
	uint8_t state = SREG;
	uint16_t ticks;
	uint32_t wraps;

	noInterrupts();
	ticks = TCNT1;
	wraps = clock_wraps;
	/* The timer wrapped, and its interrupt waits. */
	if ((TIFR1 & 1 << TOV1) && ticks < 0x8000)
		wraps++;
	SREG = state;
	return ((uint64_t)wraps << 16 | ticks) * TICK_NS;
}

/* Header of a received UDP datagram in the controller: source address, source port, length. */
static const uint16_t UDP_HEADER = 8;
static const uint16_t MAX_DATAGRAM = 64;

static void answer_datagram(void)
{
	uint8_t header[UDP_HEADER], datagram[MAX_DATAGRAM], reply[TEXT_TIMED_REPLY_LEN];
	uint16_t waiting = w5500_received(UDP_SOCKET);
	uint64_t received = clock_now();
	uint16_t length, port;

	if (waiting < UDP_HEADER || w5500_sendable(UDP_SOCKET) < sizeof(reply))
		return;
	w5500_peek(UDP_SOCKET, 0, header, UDP_HEADER);
	port = (uint16_t)header[4] << 8 | header[5];
	length = (uint16_t)header[6] << 8 | header[7];
	if (length > waiting - UDP_HEADER) {
		/* Not a datagram: drop all that was received. */
		w5500_take(UDP_SOCKET, waiting);
		return;
	}
	/* No request is longer, and a reply to the own port or to an echo service might return. */
	if (length <= MAX_DATAGRAM && port != PORT && port != 7 && port != 19) {
		w5500_peek(UDP_SOCKET, UDP_HEADER, datagram, length);
		enum text_request request = text_datagram(datagram, length);

		if (request != TEXT_NONE) {
			w5500_to(UDP_SOCKET, header);
			w5500_send(UDP_SOCKET, reply, text_reply(request, received, clock_now(), reply));
		}
	}
	w5500_take(UDP_SOCKET, UDP_HEADER + length);
}

/* Bytes of a stream that are read at once, and room for the replies to them. */
static const uint16_t PIECE = 42;
static const uint16_t REPLIES = (PIECE / 7 + 1) * TEXT_REPLY_LEN + TEXT_TIMED_REPLY_LEN;

static struct text_stream streams[W5500_SOCKETS];

static void answer_stream(uint8_t socket)
{
	uint8_t piece[PIECE], replies[REPLIES];
	uint16_t waiting = w5500_received(socket);
	uint64_t received = clock_now();
	uint16_t length = waiting < PIECE ? waiting : PIECE, replied = 0;

	if (waiting == 0 || w5500_sendable(socket) < REPLIES)
		return;
	w5500_peek(socket, 0, piece, length);
	w5500_take(socket, length);
	for (uint16_t at = 0; at <= length; at++) {
		enum text_request request = TEXT_NONE;

		if (at < length)
			request = text_take(&streams[socket], piece[at]);
		else if (length == waiting)
			request = text_piece_end(&streams[socket]);
		replied += text_reply(request, received, clock_now(), replies + replied);
	}
	if (replied > 0)
		w5500_send(socket, replies, replied);
}

static void serve_stream(uint8_t socket)
{
	switch (w5500_state(socket)) {
	case W5500_ESTABLISHED:
		answer_stream(socket);
		break;
	case W5500_CLOSE_WAIT:
		if (w5500_received(socket) > 0)
			answer_stream(socket);
		else
			w5500_disconnect(socket);
		break;
	case W5500_CLOSED:
		streams[socket] = text_stream();
		w5500_open(socket, W5500_OPEN_TCP, PORT);
		break;
	default:
		break;
	}
}

void setup()
{
	Serial.begin(115200);
	clock_begin();
	while (!w5500_begin(&ADDRESSES)) {
		Serial.println(F("dwell uno: no W5500 answers"));
		delay(1000);
	}
	w5500_open(UDP_SOCKET, W5500_OPEN_UDP, PORT);
	for (uint8_t socket = UDP_SOCKET + 1; socket < W5500_SOCKETS; socket++)
		w5500_open(socket, W5500_OPEN_TCP, PORT);
	Serial.println(F("dwell uno: ready at 192.168.1.78"));
}

void loop()
{
	if (w5500_state(UDP_SOCKET) == W5500_UDP)
		answer_datagram();
	else
		w5500_open(UDP_SOCKET, W5500_OPEN_UDP, PORT);
	for (uint8_t socket = UDP_SOCKET + 1; socket < W5500_SOCKETS; socket++)
		serve_stream(socket);
}
