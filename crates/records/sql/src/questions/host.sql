select side, peer, protocol, port, application,
       count(*) as flows,
       sum(sent_packets)::bigint as sent_packets,
       sum(received_packets)::bigint as received_packets,
       sum(sent_bytes)::bigint as sent_bytes,
       sum(received_bytes)::bigint as received_bytes,
       min(start_time) as first, max(end_time) as last
from (
    select 'client' as side, dst_ip as peer, protocol, dst_port as port, application, fwd_packets as sent_packets,
           rev_packets as received_packets, fwd_bytes as sent_bytes, rev_bytes as received_bytes, start_time, end_time
    from flows where src_ip = {address}
    union all
    select 'server', src_ip, protocol, dst_port, application, rev_packets, fwd_packets, rev_bytes, fwd_bytes,
           start_time, end_time
    from flows where dst_ip = {address} and src_ip is distinct from dst_ip
)
group by side, peer, protocol, port, application
order by sum(sent_bytes + received_bytes) desc, side, peer, protocol, port
limit {limit}
