with senders as (
    select src_ip as host, start_time, fwd_bytes as bytes from flows where not contains(coalesce(approximate, ''), 'overflow')
    union all
    select dst_ip, start_time, rev_bytes from flows where rev_packets > 0 and not contains(coalesce(approximate, ''), 'overflow')
)
select host, min(start_time) as first, count(*) as flows, sum(bytes)::bigint as sent_bytes
from senders
where host not in (
    select src_ip from earlier where src_ip is not null
    union all
    select dst_ip from earlier where rev_packets > 0 and dst_ip is not null
)
group by host
order by first, host
limit {limit}
