#!/usr/bin/env python3
"""malformed_frames.py INTERFACE HARDWARE ADDRESS SOURCE: sends malformed frames to a device.

Valid frames (ARP, ICMP, UDP to each port, TCP) are cut at every length, changed in every byte, and followed by
frames of random bytes. The checksums of most changed frames are corrected, so that they reach the parsers.
Prints the number of frames. Runs as root in the namespace of INTERFACE.
"""

import random
import socket
import struct
import sys
import time

SEED = 29
RANDOM_FRAMES = 500
# The device's FIFO and the queue of the interface are short.
FRAMES_PER_PAUSE = 20
PAUSE_S = 0.002
STAMP_PORT, PROBE_PORT = 862, 7100


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Corpus:
    def __init__(self, hardware, address, source):
        self.to, self.source = socket.inet_aton(address), socket.inet_aton(source)
        self.own = b"\x02\0\0\0\0\x01"
        self.ethernet = bytes.fromhex(hardware.replace(":", "")) + self.own

    def ip(self, protocol, payload, options=b"", fragment=0, length=None):
        words = 5 + len(options) // 4
        length = 4 * words + len(payload) if length is None else length
        header = struct.pack("!BBHHHBBH", 0x40 | words, 0, length & 0xFFFF, 7, fragment, 64, protocol, 0)
        header += self.source + self.to + options
        header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
        return self.ethernet + b"\x08\0" + header + payload

    def pseudo(self, protocol, payload):
        return self.source + self.to + struct.pack("!BBH", 0, protocol, len(payload))

    def udp(self, port, payload, source_port=5000, length=None):
        length = 8 + len(payload) if length is None else length
        header = struct.pack("!HHHH", source_port, port, length & 0xFFFF, 0)
        sum_of = checksum(self.pseudo(17, header + payload) + header + payload)
        return header[:6] + struct.pack("!H", sum_of or 0xFFFF) + payload

    def tcp(self, flags, payload=b"", options=b"", offset=None, port=PROBE_PORT):
        words = 5 + len(options) // 4
        offset = words if offset is None else offset
        header = struct.pack("!HHIIBBHHH", 5001, port, 1, 1, offset << 4 & 0xF0, flags, 1024, 0, 0) + options
        sum_of = checksum(self.pseudo(6, header + payload) + header + payload)
        return header[:16] + struct.pack("!H", sum_of) + header[18:] + payload

    def icmp(self, kind, payload):
        message = struct.pack("!BBHHH", kind, 0, 0, 1, 1) + payload
        return message[:2] + struct.pack("!H", checksum(message)) + message[4:]

    def arp(self, operation):
        body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + self.own + self.source + bytes(6) + self.to
        return self.ethernet + b"\x08\x06" + body

    def valid_payloads(self):
        stamp = struct.pack("!IQHH", 1, 1 << 40, 0x8001, 7).ljust(44, b"\0")
        tlvs = b"\0\x01\0\x04abcd" + b"\0\xf0\0\x02xy"
        message = bytes(16) + struct.pack("<I", 3) + b"REQ\0"
        times = b" 0123456789abcdef fedcba9876543210\n"
        yield STAMP_PORT, stamp
        yield STAMP_PORT, stamp + tlvs
        yield PROBE_PORT, message
        yield PROBE_PORT, b"request\r\n"
        yield PROBE_PORT, b"request" + times

    def frames(self):
        for port, payload in self.valid_payloads():
            for length in range(len(payload) + 1):
                yield self.ip(17, self.udp(port, payload[:length]))
            for at in range(len(payload)):
                for value in (0, 0x20, 0x7F, 0xFF):
                    changed = payload[:at] + bytes([value]) + payload[at + 1 :]
                    yield self.ip(17, self.udp(port, changed))
            yield self.ip(17, self.udp(port, payload.ljust(1472, b"\xff")))
            for length in (0, 7, 8, 9, len(payload), 1480, 65535):
                yield self.ip(17, self.udp(port, payload, length=length))
            for source_port in (0, 7, 19, 862, 7100):
                yield self.ip(17, self.udp(port, payload, source_port=source_port))
        whole = [self.arp(1), self.ip(1, self.icmp(8, b"x" * 56)), self.ip(6, self.tcp(2))]
        whole.append(self.ip(17, self.udp(STAMP_PORT, bytes(44))))
        for frame in whole:
            for length in range(14, len(frame) + 1):
                yield frame[:length]
            for at in range(12, len(frame)):
                for value in (0, 0x7F, 0xFF):
                    yield frame[:at] + bytes([value]) + frame[at + 1 :]
        datagram = self.udp(PROBE_PORT, b"request")
        for options in (b"\0" * 4, b"\x01" * 40, b"\x07\xff\xff\xff", b"\x83\x00\x00\x00", b"\x94\x04\0\0"):
            yield self.ip(17, datagram, options=options)
        for fragment in (0x2000, 0x2001, 0x1FFF, 0x3FFF, 0x0001):
            yield self.ip(17, datagram, fragment=fragment)
        for length in (0, 19, 20, 21, 1500, 65535):
            yield self.ip(17, datagram, length=length)
        for protocol in range(256):
            yield self.ip(protocol, b"\xff" * 20)
        for kind in range(256):
            yield self.ip(1, self.icmp(kind, b"\xff" * 32))
        for flags in range(256):
            yield self.ip(6, self.tcp(flags, b"request"))
        for offset in range(16):
            yield self.ip(6, self.tcp(2, options=b"\x02\x04\x05\xb4", offset=offset))
        for options in (b"\x02\0\0\0", b"\x02\xff\0\0", b"\x02\x04\0\0", b"\x03\x03\xff\0", b"\x08\x0a\0\0", b"\xff" * 40):
            yield self.ip(6, self.tcp(2, options=options))
        source = random.Random(SEED)
        for _ in range(RANDOM_FRAMES):
            body = source.randbytes(source.randrange(0, 1501))
            yield self.ethernet + source.choice([b"\x08\0", b"\x08\x06", b"\x86\xdd", b"\0\x40"]) + body


def main():
    interface, hardware, address, source = sys.argv[1:]
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.bind((interface, 0))
    count = 0
    for frame in Corpus(hardware, address, source).frames():
        link.send(frame)
        count += 1
        if count % FRAMES_PER_PAUSE == 0:
            time.sleep(PAUSE_S)
    print(count)


if __name__ == "__main__":
    main()
