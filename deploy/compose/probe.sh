#!/bin/sh
# A probe of compose.yaml: it captures one end of a pair of interfaces, to whose other end generated traffic is sent
# again and again.
set -eu

umask 077
[ -z "${WEIR_PASSWORD:-}" ] || printf '%s\n' "$WEIR_PASSWORD" >/run/weir/password
unset WEIR_PASSWORD

ip link add traffic type veth peer name mirror
ip link set traffic up
ip link set mirror up
# 60 s of traffic: its flows have ended when it begins again.
weir synth apps,flows=200,new=40,duration=60s --quiet --overwrite -o /tmp/traffic.pcap
tcpreplay --quiet --loop=0 --intf1=traffic /tmp/traffic.pcap >/dev/null &

exec weir probe --config /etc/weir/probe.toml
