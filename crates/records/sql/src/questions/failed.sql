select dst_ip as server, dst_port as port, how, count(*) as attempts, count(distinct src_ip) as clients,
       any_value(src_ip) as a_client, min(start_time) as first, max(start_time) as last
from (
    select src_ip, dst_ip, dst_port, start_time,
           case when rev_packets = 0 then 'no answer'
                when rev_tcp_syn_count = 0 and contains(rev_tcp_flags, 'R') then 'refused' end as how
    -- The client sent nothing but SYN and RST.
    from flows where protocol = 'tcp' and fwd_tcp_syn_count > 0 and not regexp_matches(fwd_tcp_flags, '[APFU]')
)
where how is not null
group by server, port, how
order by attempts desc, server, port, how
limit {limit}
