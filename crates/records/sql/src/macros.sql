-- The number of an IPv4 address, NULL for other texts.
create or replace macro ipv4_number(ip) as
    if(split_part(ip, '.', 5) = '', 16777216, null) * try_cast(split_part(ip, '.', 1) as utinyint)::ubigint
    + try_cast(split_part(ip, '.', 2) as utinyint)::ubigint * 65536
    + try_cast(split_part(ip, '.', 3) as utinyint)::ubigint * 256
    + try_cast(split_part(ip, '.', 4) as utinyint)::ubigint;

-- The groups of an IPv6 address as numbers; an IPv4 address at its end becomes two.
create or replace macro ipv6_half(part) as
    list_filter(string_split(part, ':'), lambda x: x <> '');
create or replace macro ipv6_hex(ip) as
    if(contains(ip, '.'),
       regexp_replace(ip, '[0-9.]+$', '')
           || printf('%x:%x', ipv4_number(regexp_extract(ip, '[0-9.]+$')) // 65536,
                     ipv4_number(regexp_extract(ip, '[0-9.]+$')) % 65536),
       ip);
create or replace macro ipv6_all(head, tail) as
    list_concat(list_concat(head, list_resize([]::varchar[], greatest(8 - len(head) - len(tail), 0), '0')), tail);
create or replace macro ipv6_groups(ip) as
    list_transform(
        ipv6_all(ipv6_half(split_part(ipv6_hex(ip), '::', 1)), ipv6_half(split_part(ipv6_hex(ip), '::', 2))),
        lambda x: try_cast('0x' || x as usmallint));

-- The number of an address: IPv4 32 bits, IPv6 128 bits.
create or replace macro ip_number(ip) as
    case when contains(ip, ':') then
        list_reduce(list_transform(ipv6_groups(ip), lambda x: x::uhugeint), lambda a, b: a * 65536 + b)
    else ipv4_number(ip)::uhugeint end;
create or replace macro ip_bits(ip) as if(contains(ip, ':'), 128, 32);

-- Whether an address is in a network: in_net(src_ip, '10.0.0.0/8'). What is no network is an error.
create or replace macro net_ip(net) as split_part(net, '/', 1);
create or replace macro net_host_bits(net) as
    ip_bits(net) - if(contains(net, '/'), try_cast(split_part(net, '/', 2) as utinyint), ip_bits(net));
create or replace macro power_of_two(n) as
    (1::hugeint << (n // 2))::uhugeint * (1::hugeint << (n - n // 2))::uhugeint;
create or replace macro is_net(net) as
    regexp_full_match(net, '(\d{1,3}\.){3}\d{1,3}(/\d{1,2})?|[0-9a-fA-F:]*:[0-9a-fA-F:.]*(/\d{1,3})?')
    and ip_number(net_ip(net)) is not null and net_host_bits(net) between 0 and ip_bits(net);
create or replace macro in_net(ip, net) as
    case when not is_net(net) then error('in_net: ' || net || ' is no network; write for example 10.0.0.0/8')::boolean
         when contains(ip, ':') <> contains(net, ':') then false
         when net_host_bits(net) = ip_bits(net) then if(ip_number(ip) is null, null, true)
         else ip_number(ip) // power_of_two(net_host_bits(net))
              = ip_number(net_ip(net)) // power_of_two(net_host_bits(net)) end;

-- Community ID version 1, seed 0. Of ICMP the ports are type and code:
--   community_id(src_ip, coalesce(fwd_icmp_type, src_port), dst_ip, coalesce(fwd_icmp_code, dst_port), protocol)
create or replace macro ip_octets(ip) as
    unhex(if(contains(ip, ':'),
             array_to_string(list_transform(ipv6_groups(ip), lambda x: printf('%04x', x::bigint)), ''),
             printf('%08x', ipv4_number(ip)::bigint)));
create or replace macro icmp_counterpart(protocol, kind) as
    case when protocol = 1 then
        case kind when 8 then 0 when 0 then 8 when 13 then 14 when 14 then 13 when 15 then 16 when 16 then 15
                  when 17 then 18 when 18 then 17 when 10 then 9 when 9 then 10 end
    else
        case when kind in (128, 130, 133, 135, 139, 144) then kind + 1
             when kind in (129, 131, 134, 136, 140, 145) then kind - 1 end
    end;
create or replace macro community_id_text(first_ip, first_port, second_ip, second_port, number) as
    '1:' || to_base64(unhex(sha1(
        unhex('0000') || ip_octets(first_ip) || ip_octets(second_ip) || unhex(printf('%02x00', number::bigint))
        || if(number in (1, 6, 17, 58, 132),
              unhex(printf('%04x%04x', first_port::bigint, second_port::bigint)), ''::blob))));
create or replace macro community_id_sorted(a_ip, a_port, b_ip, b_port, number, keeps_order) as
    if(keeps_order or ip_number(a_ip) < ip_number(b_ip) or (ip_number(a_ip) = ip_number(b_ip) and a_port <= b_port),
       community_id_text(a_ip, a_port, b_ip, b_port, number),
       community_id_text(b_ip, b_port, a_ip, a_port, number));
create or replace macro community_id_of(src_ip, src_port, dst_ip, dst_port, number) as
    case when number in (1, 58) then
        community_id_sorted(src_ip, src_port, dst_ip, coalesce(icmp_counterpart(number, src_port), dst_port), number,
                            icmp_counterpart(number, src_port) is null)
    else
        community_id_sorted(src_ip, coalesce(src_port, 0), dst_ip, coalesce(dst_port, 0), number, false)
    end;
create or replace macro community_id(src_ip, src_port, dst_ip, dst_port, protocol) as
    community_id_of(src_ip, src_port, dst_ip, dst_port, protocol_number(protocol));
