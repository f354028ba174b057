select {ip:address} as server, protocol, port, application,
       sum(responses) as answers,
       round(sum(mean_ns * responses) / sum(responses) / 1e6, 3) as mean_response_ms,
       round(max(max_ns) / 1e6, 3) as max_response_ms
from (
    select dst_ip as address, protocol, dst_port as port, application, toUInt64(rev_tcp_response_count) as responses,
           toFloat64(rev_tcp_response_mean_ns) as mean_ns, toFloat64(rev_tcp_response_max_ns) as max_ns
    from flows where rev_tcp_response_count > 0
    union all
    select dst_ip, protocol, dst_port, application, 1, toFloat64(udp_response_ns), toFloat64(udp_response_ns)
    from flows where udp_response_ns is not null
)
group by address, protocol, port, application
order by mean_response_ms desc, address, protocol, port
limit {limit}
