/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Driver of the LM3S6965's Ethernet controller. The interrupt handler moves frames from the controller's
 * FIFO (2 KiB) into a queue, with the time of their receipt; the main loop passes them to lwIP.
 */
#ifndef DWELL_ETHERNET_H
#define DWELL_ETHERNET_H

#include <stdbool.h>
#include <stdint.h>

#include "lwip/netif.h"

/* Initialises the controller and the interface; for netif_add(). `netif->state` is its MAC address. */
err_t ethernet_start(struct netif *netif);

/* Whether a frame waits for ethernet_poll(). */
bool ethernet_is_pending(void);

/* Passes the oldest frame to lwIP. Returns false without one. */
bool ethernet_poll(struct netif *netif);

/* Time at which the frame that lwIP processes was received, in nanoseconds of clock_now(). */
uint64_t ethernet_received(void);

/* Handles the controller's interrupt. */
void ethernet_handler(void);

#endif
