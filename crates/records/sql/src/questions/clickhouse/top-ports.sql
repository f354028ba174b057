select protocol, dst_port as port,
       count() as flows,
       sum(fwd_packets + rev_packets) as packets,
       sum(fwd_bytes + rev_bytes) as bytes
from flows
group by protocol, dst_port
order by bytes desc, protocol, port
limit {limit}
