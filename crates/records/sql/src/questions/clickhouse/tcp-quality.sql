select {ip:address} as server, port, count() as flows,
       sum(segment_count) as segments,
       sum(retransmitted_count) as retransmitted,
       round(100 * retransmitted / nullIf(segments, 0), 3) as retransmitted_percent,
       sum(missing) as missing_bytes,
       round(quantileExactInclusive(0.5)(rtt_ns) / 1e6, 3) as median_rtt_ms,
       sum(zero_windows) as zero_window
from (
    select dst_ip as address, dst_port as port,
           fwd_tcp_syn_count + rev_tcp_syn_count + fwd_tcp_in_order_packets + rev_tcp_in_order_packets
           + fwd_tcp_out_of_order + rev_tcp_out_of_order + fwd_tcp_out_of_window + rev_tcp_out_of_window
           + fwd_tcp_zero_window_probes + rev_tcp_zero_window_probes
           + fwd_tcp_retransmitted_packets + rev_tcp_retransmitted_packets
           + fwd_tcp_retransmitted_unseen + rev_tcp_retransmitted_unseen as segment_count,
           fwd_tcp_syn_retransmitted + rev_tcp_syn_retransmitted
           + fwd_tcp_retransmitted_packets + rev_tcp_retransmitted_packets
           + fwd_tcp_retransmitted_unseen + rev_tcp_retransmitted_unseen as retransmitted_count,
           fwd_tcp_missing_bytes + rev_tcp_missing_bytes as missing,
           fwd_tcp_zero_window + rev_tcp_zero_window as zero_windows,
           -- The answer to a SYN that was repeated may be that to any of them (Karn's rule).
           case when fwd_tcp_syn_count = 1 and rev_tcp_syn_count = 1
                     and fwd_tcp_syn_retransmitted + rev_tcp_syn_retransmitted = 0
                then fwd_tcp_handshake_rtt_ns + rev_tcp_handshake_rtt_ns end as rtt_ns
    -- Without an answer, a repeated SYN is no lost segment.
    from flows where protocol = 'tcp' and not (rev_packets = 0 and fwd_tcp_syn_count > 0 and not match(fwd_tcp_flags, '[APFU]'))
)
group by address, port
order by retransmitted desc nulls last, segments desc nulls last, address, port
limit {limit}
