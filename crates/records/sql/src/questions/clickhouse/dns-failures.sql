select dns_name as name,
       sum(dns_queries) as queries,
       sum(dns_nxdomain) as nxdomain,
       sum(dns_unanswered) as unanswered,
       countIf(dns_rcode not in (0, 3)) as flows_with_other_errors,
       uniqExact(src_ip) as clients,
       {ip:any(src_ip)} as a_client
from flows
where dns_nxdomain > 0 or dns_unanswered > 0 or dns_rcode > 0
group by dns_name
order by greatest(ifNull(nxdomain, 0), ifNull(unanswered, 0), flows_with_other_errors) desc, name
limit {limit}
