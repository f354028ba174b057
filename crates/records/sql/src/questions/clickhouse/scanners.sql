select {ip:src_ip} as host,
       uniqExact(dst_ip) as hosts,
       uniqExactIf(dst_port, protocol in ('tcp', 'udp', 'sctp', 'udplite', 'dccp')) as ports,
       count() as flows,
       round(100 * countIf(rev_packets = 0) / count(), 1) as unanswered_percent,
       min(start_time) as first, max(start_time) as last
from flows
-- Overflow records are sums of prefixes.
where not has(approximate, 'overflow')
group by src_ip
order by greatest(hosts, ports) desc, flows desc, src_ip
limit {limit}
