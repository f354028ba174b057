-- A parameter of a macro is written out wherever it stands, so that nested macros grow without limit. The parameter of a
-- lambda is a value: list_transform([value], lambda name: …)[1] gives a value a name.

-- The number of an IPv4 address, NULL for other texts.
create or replace macro ipv4_number(ip) as
    if(split_part(ip, '.', 5) = '', 16777216, null) * try_cast(split_part(ip, '.', 1) as utinyint)::ubigint
    + try_cast(split_part(ip, '.', 2) as utinyint)::ubigint * 65536
    + try_cast(split_part(ip, '.', 3) as utinyint)::ubigint * 256
    + try_cast(split_part(ip, '.', 4) as utinyint)::ubigint;

-- The number of an IPv6 address. An IPv4 address at its end becomes two groups.
create or replace macro ipv6_hex(ip) as
    if(contains(ip, '.'),
       list_transform([ipv4_number(regexp_extract(ip, '[0-9.]+$'))],
           lambda n: regexp_replace(ip, '[0-9.]+$', '') || printf('%x:%x', n // 65536, n % 65536))[1],
       ip);
create or replace macro ipv6_groups(halves) as
    list_concat(halves[1], list_resize([]::varchar[],
        greatest(8 - len(halves[1]) - len(coalesce(halves[2], []::varchar[])), 0), '0'),
        coalesce(halves[2], []::varchar[]));
create or replace macro ipv6_number(ip) as
    list_transform(
        [list_transform(string_split(ipv6_hex(ip), '::'),
             lambda half: list_filter(string_split(half, ':'), lambda part: part <> ''))],
        lambda halves: list_reduce(
            list_transform(ipv6_groups(halves), lambda part: try_cast('0x' || part as usmallint)::uhugeint),
            lambda a, b: a * 65536 + b))[1];

-- The number of an address: IPv4 32 bits, IPv6 128 bits.
create or replace macro ip_number(ip) as
    list_transform([ip],
        lambda text: if(contains(text, ':'), ipv6_number(text), ipv4_number(text)::uhugeint))[1];

-- Whether an address is in a network: in_net(src_ip, '10.0.0.0/8'). What is no network is an error.
create or replace macro power_of_two(n) as
    (1::hugeint << (n // 2))::uhugeint * (1::hugeint << (n - n // 2))::uhugeint;
create or replace macro net_parts(net) as
    list_transform([net], lambda text: {
        'text': text,
        'is_v6': contains(text, ':'),
        'bits': if(contains(text, ':'), 128, 32),
        'number': ip_number(split_part(text, '/', 1)),
        'length': if(contains(text, '/'), try_cast(split_part(text, '/', 2) as utinyint)::integer,
                     if(contains(text, ':'), 128, 32)),
        'is_text': regexp_full_match(text,
            '(\d{1,3}\.){3}\d{1,3}(/\d{1,2})?|[0-9a-fA-F:]*:[0-9a-fA-F:.]*(/\d{1,3})?')})[1];
create or replace macro in_parts(number, is_v6, net) as
    case when not coalesce(net.is_text and net.number is not null and net.length between 0 and net.bits, false)
         then error('in_net: ' || net.text || ' is no network; write for example 10.0.0.0/8')::boolean
         when is_v6 <> net.is_v6 then false
         when net.length = 0 then if(number is null, null, true)
         else number // power_of_two(net.bits - net.length) = net.number // power_of_two(net.bits - net.length) end;
create or replace macro in_net(ip, net) as
    list_transform([{'number': ip_number(ip), 'is_v6': contains(ip, ':'), 'net': net_parts(net)}],
        lambda f: in_parts(f.number, f.is_v6, f.net))[1];

-- Community ID version 1, seed 0. Of ICMP the ports are type and code:
--   community_id(src_ip, coalesce(fwd_icmp_type, src_port), dst_ip, coalesce(fwd_icmp_code, dst_port), protocol)
create or replace macro ip_octets(number, is_v6) as
    unhex(if(is_v6, printf('%016x%016x', (number // 18446744073709551616)::ubigint,
                           (number % 18446744073709551616)::ubigint),
             printf('%08x', (number % 4294967296)::ubigint)));
create or replace macro icmp_counterpart(protocol, kind) as
    case when protocol = 1 then
        case kind when 8 then 0 when 0 then 8 when 13 then 14 when 14 then 13 when 15 then 16 when 16 then 15
                  when 17 then 18 when 18 then 17 when 10 then 9 when 9 then 10 end
    when protocol = 58 then
        case when kind in (128, 130, 133, 135, 139, 144) then kind + 1
             when kind in (129, 131, 134, 136, 140, 145) then kind - 1 end
    end;
create or replace macro community_id_text(f) as
    '1:' || to_base64(unhex(sha1(
        unhex('0000') || ip_octets(f.first, f.is_v6) || ip_octets(f.second, f.is_v6)
        || unhex(printf('%02x00', f.protocol::bigint))
        || if(f.protocol in (1, 6, 17, 58, 132),
              unhex(printf('%04x%04x', f.first_port::bigint, f.second_port::bigint)), ''::blob))));
create or replace macro community_id_sorted(f) as
    if(f.keeps_order or f.src < f.dst or (f.src = f.dst and f.src_port <= f.dst_port),
       {'protocol': f.protocol, 'is_v6': f.is_v6, 'first': f.src, 'second': f.dst, 'first_port': f.src_port,
        'second_port': f.dst_port},
       {'protocol': f.protocol, 'is_v6': f.is_v6, 'first': f.dst, 'second': f.src, 'first_port': f.dst_port,
        'second_port': f.src_port});
create or replace macro community_id_ports(f) as
    {'protocol': f.protocol, 'is_v6': f.is_v6, 'src': f.src, 'dst': f.dst, 'src_port': coalesce(f.src_port, 0),
     'dst_port': coalesce(icmp_counterpart(f.protocol, f.src_port), f.dst_port, 0),
     'keeps_order': f.protocol in (1, 58) and icmp_counterpart(f.protocol, f.src_port) is null};
create or replace macro community_id(src_ip, src_port, dst_ip, dst_port, protocol) as
    list_transform(
        list_transform(
            list_transform(
                [{'protocol': protocol_number(protocol), 'is_v6': contains(src_ip, ':'), 'src': ip_number(src_ip),
                  'dst': ip_number(dst_ip), 'src_port': src_port::bigint, 'dst_port': dst_port::bigint}],
                lambda f: community_id_ports(f)),
            lambda f: community_id_sorted(f)),
        lambda f: community_id_text(f))[1];
