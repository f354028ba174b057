select if(dns_queries > 1, null, dns_name) as name,
       if(dns_queries > 1, dst_ip, null) as server,
       count(*) as flows,
       sum(dns_queries)::bigint as queries,
       sum(dns_nxdomain)::bigint as nxdomain,
       sum(dns_servfail)::bigint as servfail,
       sum(dns_refused)::bigint as refused,
       sum(dns_other_errors)::bigint as other_errors,
       sum(dns_unanswered)::bigint as unanswered,
       count(distinct src_ip) as clients,
       any_value(src_ip) as a_client
-- A flow with several questions has only the name of the first one: it counts by its server.
from flows
where dns_nxdomain > 0 or dns_servfail > 0 or dns_refused > 0 or dns_other_errors > 0 or dns_unanswered > 0
group by 1, 2
order by greatest(nxdomain, servfail, refused, other_errors, unanswered) desc, name, server
limit {limit}
