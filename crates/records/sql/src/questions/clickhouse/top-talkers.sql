select {ip:address} as host,
       sum(flow_count) as flows,
       sum(sent) as sent_packets,
       sum(received) as received_packets,
       sum(bytes_sent) as sent_bytes,
       sum(bytes_received) as received_bytes,
       sum(bytes_once) as bytes
from (
    select src_ip as address, count() as flow_count, sum(fwd_packets) as sent, sum(rev_packets) as received,
           sum(fwd_bytes) as bytes_sent, sum(rev_bytes) as bytes_received, sum(fwd_bytes + rev_bytes) as bytes_once
    from flows group by src_ip
    union all
    -- A host that sends to itself sends and receives all, but has each flow once.
    select dst_ip, countIf(dst_ip <> src_ip), sum(rev_packets), sum(fwd_packets), sum(rev_bytes), sum(fwd_bytes),
           sumIf(fwd_bytes + rev_bytes, dst_ip <> src_ip)
    from flows group by dst_ip
)
group by address
order by bytes desc, address
limit {limit}
