"""Decodes the datagrams of a capture with the package netflow and prints a JSON object per record.

The capture is one that the tests of Weir write: pcap, little-endian, raw IPv4, UDP.
usage: python_netflow.py CAPTURE
"""

import ipaddress
import json
import struct
import sys

import netflow

FILE_HEADER, RECORD_HEADER, IP_AND_UDP = 24, 16, 28


def datagrams(octets):
    at = FILE_HEADER
    while at < len(octets):
        (length,) = struct.unpack_from("<I", octets, at + 8)
        at += RECORD_HEADER
        yield octets[at + IP_AND_UDP : at + length]
        at += length


def printable(name, value):
    if name.endswith("IPv4Address") or (name.startswith("IPV4_") and isinstance(value, int)):
        return str(ipaddress.IPv4Address(value))
    if name.endswith("IPv6Address"):
        return str(ipaddress.IPv6Address(value))
    return value


# The package looks templates up by their number only, so each observation domain gets a collector.
templates = {}
with open(sys.argv[1], "rb") as capture:
    for datagram in datagrams(capture.read()):
        (version,) = struct.unpack_from("!H", datagram)
        (domain,) = struct.unpack_from("!I", datagram, {5: 20, 9: 16, 10: 12}[version])
        known = templates.setdefault(domain, {"netflow": {}, "ipfix": {}})
        message = netflow.parse_packet(datagram, known)
        for flow in message.flows:
            record = {name: printable(name, value) for name, value in flow.data.items()}
            if version != 10:
                record["boot_ms"] = message.header.timestamp * 1000 - message.header.uptime
            print(json.dumps(record))
