select host,
       sum(flows)::bigint as flows,
       sum(sent_packets)::bigint as sent_packets,
       sum(received_packets)::bigint as received_packets,
       sum(sent_bytes)::bigint as sent_bytes,
       sum(received_bytes)::bigint as received_bytes,
       sum(bytes)::bigint as bytes
from (
    select src_ip as host, count(*) as flows, sum(fwd_packets) as sent_packets, sum(rev_packets) as received_packets,
           sum(fwd_bytes) as sent_bytes, sum(rev_bytes) as received_bytes, sum(fwd_bytes + rev_bytes) as bytes
    from flows group by src_ip
    union all
    -- A host that sends to itself sends and receives all, but has each flow once.
    select dst_ip, count(*) filter (dst_ip <> src_ip), sum(rev_packets), sum(fwd_packets), sum(rev_bytes),
           sum(fwd_bytes), sum(fwd_bytes + rev_bytes) filter (dst_ip <> src_ip)
    from flows group by dst_ip
)
group by host
order by bytes desc, host
limit {limit}
