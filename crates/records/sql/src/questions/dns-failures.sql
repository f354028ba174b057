select dns_name as name,
       sum(dns_queries)::bigint as queries,
       sum(dns_nxdomain)::bigint as nxdomain,
       sum(dns_unanswered)::bigint as unanswered,
       count(*) filter (dns_rcode not in (0, 3)) as flows_with_other_errors,
       count(distinct src_ip) as clients,
       any_value(src_ip) as a_client
from flows
where dns_nxdomain > 0 or dns_unanswered > 0 or dns_rcode > 0
group by dns_name
order by greatest(nxdomain, unanswered, flows_with_other_errors) desc, name
limit {limit}
