select time_bucket(to_microseconds({step_us}), start_time, timestamptz '1970-01-01 00:00:00+00') as time,
       count(*) as flows,
       sum(fwd_packets + rev_packets)::bigint as packets,
       sum(fwd_bytes + rev_bytes)::bigint as bytes,
       round(8e6 * sum(fwd_bytes + rev_bytes) / {step_us})::bigint as bps
from flows
group by 1
order by time
