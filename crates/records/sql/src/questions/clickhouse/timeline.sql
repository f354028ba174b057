select fromUnixTimestamp64Nano(intDiv(toUnixTimestamp64Nano(start_time), {step_ns}) * {step_ns}, 'UTC') as time,
       count() as flows,
       sum(fwd_packets + rev_packets) as packets,
       sum(fwd_bytes + rev_bytes) as bytes,
       toUInt64(round(8e9 * bytes / {step_ns})) as bps
from flows
group by time
order by time
