select protocol, dst_port as port, port_name(dst_port, protocol) as service,
       count(*) as flows,
       sum(fwd_packets + rev_packets)::bigint as packets,
       sum(fwd_bytes + rev_bytes)::bigint as bytes
from flows
group by protocol, dst_port
order by bytes desc, protocol, port
limit {limit}
