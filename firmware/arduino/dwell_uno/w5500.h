/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Driver of the Ethernet controller W5500 on SPI, as far as the sketch needs it (data sheet, version 1.0.2):
 * UDP and TCP sockets of the controller with 2 KiB of memory in each direction. No function waits for a peer.
 */
#ifndef DWELL_W5500_H
#define DWELL_W5500_H

#include <stdbool.h>
#include <stdint.h>

/* Number of sockets. */
#define W5500_SOCKETS 8

/* Addresses of the controller. */
struct w5500_addresses {
	uint8_t gateway[4];
	uint8_t netmask[4];
	uint8_t mac[6];
	uint8_t address[4];
};

/* State of a socket (register Sn_SR). */
enum w5500_state {
	W5500_CLOSED = 0x00,
	W5500_INIT = 0x13,
	W5500_LISTEN = 0x14,
	W5500_ESTABLISHED = 0x17,
	W5500_CLOSE_WAIT = 0x1c,
	W5500_UDP = 0x22,
};

enum w5500_protocol { W5500_OPEN_TCP = 0x01, W5500_OPEN_UDP = 0x02 };

/* Resets the controller and sets its addresses. Returns false if no W5500 answers on SPI. */
bool w5500_begin(const struct w5500_addresses *addresses);

/* Opens a socket on a local port; a TCP socket listens. */
void w5500_open(uint8_t socket, enum w5500_protocol protocol, uint16_t port);

/* Returns the state of a socket. */
uint8_t w5500_state(uint8_t socket);

/* Closes a TCP connection after the peer has closed it. */
void w5500_disconnect(uint8_t socket);

/* Returns the number of received bytes. */
uint16_t w5500_received(uint8_t socket);

/* Copies received bytes from this position on, without taking them; there must be as many. */
void w5500_peek(uint8_t socket, uint16_t position, uint8_t *bytes, uint16_t length);

/* Takes received bytes. */
void w5500_take(uint8_t socket, uint16_t length);

/* Returns the free bytes of the send memory, 0 while the last message is being sent. */
uint16_t w5500_sendable(uint8_t socket);

/* Sets the destination of later messages of a UDP socket: address, and port in network order. */
void w5500_to(uint8_t socket, const uint8_t destination[6]);

/* Sends a message, for which there must be room. */
void w5500_send(uint8_t socket, const uint8_t *bytes, uint16_t length);

#endif
