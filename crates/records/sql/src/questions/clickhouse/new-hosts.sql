select {ip:address} as host, min(time) as first, count() as flows, sum(bytes) as sent_bytes
from (
    select src_ip as address, start_time as time, fwd_bytes as bytes from flows where not has(approximate, 'overflow')
    union all
    select dst_ip, start_time, rev_bytes from flows where rev_packets > 0 and not has(approximate, 'overflow')
)
where address not in (
    select src_ip from earlier
    union all
    select dst_ip from earlier where rev_packets > 0
)
group by address
order by first, address
limit {limit}
