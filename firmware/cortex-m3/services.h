/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The services of the device on lwIP's raw API. */
#ifndef DWELL_SERVICES_H
#define DWELL_SERVICES_H

/* Ports of the services. */
#define STAMP_PORT 862
#define TEXT_PORT 7000
#define ROUNDTRIP_PORT 7001

/* Opens the ports: STAMP and round-trip over UDP, request/acknowledge over UDP and TCP. */
void services_start(void);

#endif
