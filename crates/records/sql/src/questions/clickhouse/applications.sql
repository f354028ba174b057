select application,
       count() as flows,
       sum(fwd_packets + rev_packets) as packets,
       sum(fwd_bytes + rev_bytes) as bytes,
       round(100 * bytes / sum(bytes) over (), 2) as percent
from flows
group by application
order by bytes desc, application
limit {limit}
