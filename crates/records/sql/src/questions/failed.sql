with failures as (
    select src_ip, dst_ip, dst_port, start_time,
           case when rev_packets = 0 then 'no answer'
                when rev_tcp_syn_count = 0 and contains(rev_tcp_flags, 'R') then 'refused' end as how
    -- The client sent nothing but SYN and RST.
    from flows where protocol = 'tcp' and fwd_tcp_syn_count > 0 and not regexp_matches(fwd_tcp_flags, '[APFU]')
),
-- Who failed with 20 targets scans: all of that is one row.
scanners as (
    select src_ip as scanner from failures where how is not null
    group by src_ip having count(distinct dst_ip || ' ' || dst_port) >= 20
),
targets as (
    select *, scanner is not null as is_scan from failures left join scanners on src_ip = scanner
    where how is not null
)
select scanner,
       case when count(distinct dst_ip) = 1 then any_value(dst_ip) end as server,
       case when count(distinct dst_port) = 1 then any_value(dst_port) end as port,
       if(count(distinct how) = 1, any_value(how), 'no answer, refused') as how,
       count(*) as attempts, count(distinct dst_ip) as servers, count(distinct dst_port) as ports,
       count(distinct src_ip) as clients, any_value(src_ip) as a_client,
       min(start_time) as first, max(start_time) as last
from targets
group by scanner, if(is_scan, null, dst_ip), if(is_scan, null, dst_port), if(is_scan, null, targets.how)
order by attempts desc, scanner, server, port, how
limit {limit}
