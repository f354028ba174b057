select src_ip as host,
       count(distinct dst_ip) as hosts,
       count(distinct dst_port) filter (protocol in ('tcp', 'udp', 'sctp', 'udplite', 'dccp')) as ports,
       count(*) as flows,
       round(100 * count(*) filter (rev_packets = 0) / count(*), 1) as unanswered_percent,
       min(start_time) as first, max(start_time) as last
from flows
-- Overflow records are sums of prefixes.
where not contains(coalesce(approximate, ''), 'overflow')
group by src_ip
order by greatest(hosts, ports) desc, flows desc, host
limit {limit}
