select host,
       sum(flows)::bigint as flows,
       sum(sent_packets)::bigint as sent_packets,
       sum(received_packets)::bigint as received_packets,
       sum(sent_bytes)::bigint as sent_bytes,
       sum(received_bytes)::bigint as received_bytes,
       sum(sent_bytes + received_bytes)::bigint as bytes
from (
    select src_ip as host, count(*) as flows, sum(fwd_packets) as sent_packets, sum(rev_packets) as received_packets,
           sum(fwd_bytes) as sent_bytes, sum(rev_bytes) as received_bytes
    from flows group by src_ip
    union all
    select dst_ip, count(*), sum(rev_packets), sum(fwd_packets), sum(rev_bytes), sum(fwd_bytes)
    from flows where dst_ip is distinct from src_ip group by dst_ip
)
group by host
order by bytes desc, host
limit {limit}
