/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The services of the device on lwIP's raw API. */
#ifndef DWELL_SERVICES_H
#define DWELL_SERVICES_H

/* Port of STAMP over UDP; port of round-trip over UDP, and of request/acknowledge over UDP and TCP. */
#define STAMP_PORT 862
#define PROBE_PORT 7100

/* Opens the ports: STAMP and round-trip over UDP, request/acknowledge over UDP and TCP. */
void services_start(void);

#endif
