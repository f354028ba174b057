select if(dns_queries > 1, null, dns_name) as name,
       if(dns_queries > 1, {ip:dst_ip}, null) as server,
       count() as flows,
       sum(dns_queries) as queries,
       sum(dns_nxdomain) as nxdomain,
       sum(dns_servfail) as servfail,
       sum(dns_refused) as refused,
       sum(dns_other_errors) as other_errors,
       sum(dns_unanswered) as unanswered,
       uniqExact(src_ip) as clients,
       {ip:any(src_ip)} as a_client
-- A flow with several questions has only the name of the first one: it counts by its server.
from flows
where dns_nxdomain > 0 or dns_servfail > 0 or dns_refused > 0 or dns_other_errors > 0 or dns_unanswered > 0
group by name, server
order by greatest(ifNull(nxdomain, 0), ifNull(servfail, 0), ifNull(refused, 0), ifNull(other_errors, 0),
                  ifNull(unanswered, 0)) desc, name nulls last, server nulls last
limit {limit}
