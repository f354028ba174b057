//! RESP, the protocol of Redis (<https://redis.io/docs/latest/develop/reference/protocol-spec/>):
//! the first command of a client as an array of strings. A command that Redis does not have is a
//! pattern.

use crate::start::{Read, Start, require};
use crate::{Application, Confidence, Findings, Streams, Verdict};

/// Octets of a number, and of the name of a command.
const MAX_DIGITS: usize = 8;
const MAX_COMMAND_OCTETS: usize = 64;

/// Commands of Redis 7 without its modules (<https://redis.io/docs/latest/commands/>).
const COMMANDS: &str = "ACL APPEND ASKING AUTH BGREWRITEAOF BGSAVE BITCOUNT BITFIELD BITFIELD_RO BITOP BITPOS \
    BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN CLIENT CLUSTER COMMAND CONFIG COPY DBSIZE DEBUG \
    DECR DECRBY DEL DISCARD DUMP ECHO EVAL EVALSHA EVALSHA_RO EVAL_RO EXEC EXISTS EXPIRE EXPIREAT EXPIRETIME \
    FAILOVER FCALL FCALL_RO FLUSHALL FLUSHDB FUNCTION GEOADD GEODIST GEOHASH GEOPOS GEORADIUS GEORADIUSBYMEMBER \
    GEOSEARCH GEOSEARCHSTORE GET GETBIT GETDEL GETEX GETRANGE GETSET HDEL HELLO HEXISTS HGET HGETALL HINCRBY \
    HINCRBYFLOAT HKEYS HLEN HMGET HMSET HRANDFIELD HSCAN HSET HSETNX HSTRLEN HVALS INCR INCRBY INCRBYFLOAT INFO \
    KEYS LASTSAVE LATENCY LCS LINDEX LINSERT LLEN LMOVE LMPOP LOLWUT LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM \
    MEMORY MGET MIGRATE MODULE MONITOR MOVE MSET MSETNX MULTI OBJECT PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD \
    PFCOUNT PFMERGE PING PSETEX PSUBSCRIBE PSYNC PTTL PUBLISH PUBSUB PUNSUBSCRIBE QUIT RANDOMKEY READONLY READWRITE \
    RENAME RENAMENX REPLCONF REPLICAOF RESET RESTORE ROLE RPOP RPOPLPUSH RPUSH RPUSHX SADD SAVE SCAN SCARD SCRIPT \
    SDIFF SDIFFSTORE SELECT SET SETBIT SETEX SETNX SETRANGE SHUTDOWN SINTER SINTERCARD SINTERSTORE SISMEMBER SLAVEOF \
    SLOWLOG SMEMBERS SMISMEMBER SMOVE SORT SORT_RO SPOP SPUBLISH SRANDMEMBER SREM SSCAN SSUBSCRIBE STRLEN SUBSCRIBE \
    SUBSTR SUNION SUNIONSTORE SUNSUBSCRIBE SWAPDB SYNC TIME TOUCH TTL TYPE UNLINK UNSUBSCRIBE UNWATCH WAIT WAITAOF \
    WATCH XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO XLEN XPENDING XRANGE XREAD XREADGROUP XREVRANGE XSETID XTRIM \
    ZADD ZCARD ZCOUNT ZDIFF ZDIFFSTORE ZINCRBY ZINTER ZINTERCARD ZINTERSTORE ZLEXCOUNT ZMPOP ZMSCORE ZPOPMAX ZPOPMIN \
    ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANGESTORE ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK \
    ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION ZUNIONSTORE";

pub(crate) fn read_streams(streams: &Streams<'_>, findings: &mut Findings) -> Read<Verdict> {
    let mut rest = Start(streams.first);
    require(number(&mut rest, b'*')? > 0)?;
    let length = number(&mut rest, b'$')?;
    require((1..=MAX_COMMAND_OCTETS).contains(&length))?;
    let is_command = |octet: &u8| octet.is_ascii_alphabetic() || b"._|-".contains(octet);
    require(rest.0.iter().take(length).all(is_command))?;
    let command = rest.take(length)?;
    rest.expect(b"\r\n")?;
    let is_known = COMMANDS.split(' ').any(|known| command.eq_ignore_ascii_case(known.as_bytes()));
    findings.recognise(Application::Redis, if is_known { Confidence::Message } else { Confidence::Pattern });
    Ok(Verdict::Complete)
}

/// A number behind the octet of its type.
fn number(octets: &mut Start<'_>, kind: u8) -> Read<usize> {
    octets.expect(&[kind])?;
    let mut value = 0;
    for _ in 0..MAX_DIGITS {
        match octets.u8()? {
            digit @ b'0'..=b'9' => value = value * 10 + usize::from(digit - b'0'),
            b'\r' => {
                octets.expect(b"\n")?;
                return Ok(value);
            }
            _ => return Err(Verdict::No),
        }
    }
    Err(Verdict::No)
}
