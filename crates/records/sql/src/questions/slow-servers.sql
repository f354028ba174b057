select server, protocol, port, application,
       sum(answers)::bigint as answers,
       round(sum(mean_ns * answers) / sum(answers) / 1e6, 3) as mean_response_ms,
       round(max(max_ns) / 1e6, 3) as max_response_ms
from (
    select dst_ip as server, protocol, dst_port as port, application, rev_tcp_response_count as answers,
           rev_tcp_response_mean_ns as mean_ns, rev_tcp_response_max_ns as max_ns
    from flows where rev_tcp_response_count > 0
    union all
    select dst_ip, protocol, dst_port, application, 1, udp_response_ns, udp_response_ns
    from flows where udp_response_ns is not null
)
group by server, protocol, port, application
order by mean_response_ms desc, server, protocol, port
limit {limit}
