select {ip:dst_ip} as server, dst_port as port, how, count() as attempts, uniqExact(src_ip) as clients,
       {ip:any(src_ip)} as a_client, min(start_time) as first, max(start_time) as last
from (
    select src_ip, dst_ip, dst_port, start_time,
           multiIf(rev_packets = 0, 'no answer',
                   rev_tcp_syn_count = 0 and position(rev_tcp_flags, 'R') > 0, 'refused', '') as how
    -- The client sent nothing but SYN and RST.
    from flows where protocol = 'tcp' and fwd_tcp_syn_count > 0 and not match(fwd_tcp_flags, '[APFU]')
)
where how <> ''
group by dst_ip, port, how
order by attempts desc, dst_ip, port, how
limit {limit}
