select side, {ip:peer} as peer_address, protocol, port, application,
       count() as flows,
       sum(sent_packets) as all_sent_packets,
       sum(received_packets) as all_received_packets,
       sum(sent_bytes) as all_sent_bytes,
       sum(received_bytes) as all_received_bytes,
       min(start_time) as first, max(end_time) as last
from (
    select 'client' as side, dst_ip as peer, protocol, dst_port as port, application, fwd_packets as sent_packets,
           rev_packets as received_packets, fwd_bytes as sent_bytes, rev_bytes as received_bytes, start_time, end_time
    from flows where src_ip = toIPv6({address})
    union all
    select 'server', src_ip, protocol, dst_port, application, rev_packets, fwd_packets, rev_bytes, fwd_bytes,
           start_time, end_time
    from flows where dst_ip = toIPv6({address}) and src_ip <> dst_ip
)
group by side, peer, protocol, port, application
order by all_sent_bytes + all_received_bytes desc, side, peer, protocol, port
limit {limit}
