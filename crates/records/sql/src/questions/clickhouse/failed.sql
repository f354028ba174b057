select if(is_scan, {ip:source}, null) as scanner,
       if(uniqExact(address) = 1, {ip:any(address)}, null) as server,
       if(uniqExact(target_port) = 1, any(target_port), null) as port,
       if(uniqExact(outcome) = 1, any(outcome), 'no answer, refused') as how,
       count() as attempts, uniqExact(address) as servers, uniqExact(target_port) as ports,
       uniqExact(client) as clients, {ip:any(client)} as a_client, min(start_time) as first, max(start_time) as last
from (
    -- Who failed with 20 targets scans: all of that is one row.
    select client, address, target_port, start_time, outcome, targets >= 20 as is_scan,
           if(is_scan, client, toIPv6('::')) as source, if(is_scan, toIPv6('::'), address) as one_address,
           if(is_scan, 0, target_port) as one_port, if(is_scan, '', outcome) as one_outcome
    from (
        select client, address, target_port, start_time, outcome,
               uniqExact((address, target_port)) over (partition by client) as targets
        from (
            select src_ip as client, dst_ip as address, dst_port as target_port, start_time,
                   multiIf(rev_packets = 0, 'no answer',
                           rev_tcp_syn_count = 0 and position(rev_tcp_flags, 'R') > 0, 'refused', '') as outcome
            -- The client sent nothing but SYN and RST.
            from flows where protocol = 'tcp' and fwd_tcp_syn_count > 0 and not match(fwd_tcp_flags, '[APFU]')
        )
        where outcome <> ''
    )
)
group by is_scan, source, one_address, one_port, one_outcome
order by attempts desc, is_scan desc, source, one_address, one_port, one_outcome
limit {limit}
