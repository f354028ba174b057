select application,
       count(*) as flows,
       sum(fwd_packets + rev_packets)::bigint as packets,
       sum(fwd_bytes + rev_bytes)::bigint as bytes,
       round(100 * sum(fwd_bytes + rev_bytes) / sum(sum(fwd_bytes + rev_bytes)) over (), 2) as percent
from flows
group by application
order by bytes desc, application
limit {limit}
