// The walk through a batch on a card: hash, stable sort, runs, walk, and what changed for the host. `src/cpu.rs` says the
// same in Rust and shorter; `src/card.rs` launches what is here, in order.
//
// Shapes: count records in `records`; `order` and `other` are words [count]: 40 bits of the hash above the number of the
// record. Segments of the sort are `segment` words each, one block of 32 threads per segment.
//
// It is compiled for a card, and by an ordinary C++ compiler for tests, with threads as loops (src/tests/host.h). For that
//   * a kernel is a function of its thread's number (WEIR_THREADS), or of its block's (WEIR_BLOCKS);
//   * in a block EACH is what the threads share, ALONE what one does, JOIN is where they wait, and nothing lives from
//     one to the next but what is WEIR_SHARED or the same for all.
#ifdef __CUDACC__
#define WEIR_FUNCTION __device__
#define WEIR_APART __device__ __noinline__
#define WEIR_SHARED __shared__
#define WEIR_ADD(number, more) atomicAdd(number, more)
#define WEIR_SWAP(word, from, to) atomicCAS(word, from, to)
#define WEIR_READ(word) (*static_cast<volatile unsigned long long *>(word))
#define WEIR_FENCE() __threadfence()
#define WEIR_THREADS(name)                                                                                              \
    extern "C" __global__ void __launch_bounds__(128) weir_##name(const Job job) {                                      \
        unsigned int thread = blockIdx.x * blockDim.x + threadIdx.x;                                                    \
        if (thread < job.threads) name(job, thread);                                                                    \
    }
#define WEIR_BLOCKS(name, most)                                                                                         \
    extern "C" __global__ void __launch_bounds__(most) weir_##name(const Job job) { name(job, blockIdx.x); }
#define EACH(item, count) for (u32 item = threadIdx.x; item < (count); item += blockDim.x)
#define ALONE if (threadIdx.x == 0)
#define JOIN() __syncthreads()
#else
#include "../src/tests/host.h"
#endif

#include "tcp.h"

constexpr u32 NUMBER_BITS = 24;
constexpr u64 NUMBER = (1ull << NUMBER_BITS) - 1;
constexpr u32 DIGITS = 256;
constexpr u32 LANES = 32;

// record.rs
struct Facts {
    u32 sequence, acknowledgment, time_ns;
    u16 size;
    u8 ttl, bits;
    u32 mark;
};

constexpr u32 BITS_CONTROL = 7, BITS_ACK = 8, KIND = 0x30, BARE = 0, PAYLOAD = 0x10, PACKET_UNREAD = 0x30;
constexpr u32 IDENTIFIED = 0x40, SECOND = 0x80;

struct Ipv4 {
    u32 source, destination;
    u16 source_port, destination_port;
    Facts facts;
};

struct Ipv6 {
    u64 source[2], destination[2];
    u16 source_port, destination_port;
    Facts facts;
};

// key.rs
struct Key {
    u64 low[2], high[2];
    u16 low_port, high_port;
    u32 network;
};

// table.rs
struct alignas(64) Entry {
    Key key;
    u64 hash, packets[2], first_ns, last_ns, unused[6];
    Connection connection;
};

static_assert(sizeof(Facts) == 20 && sizeof(Ipv4) == 32 && sizeof(Ipv6) == 56 && sizeof(Key) == 40, "as in record.rs");
static_assert(sizeof(Entry) == 384, "as in table.rs");

// What is counted on the card in a batch.
enum Tally : u32 { RUNS, LONG_RUNS, NEW, CLOSED, TOUCHED, TAKEN, TROUBLES };

// What every kernel is told: card.rs.
struct Job {
    const void *records;
    u64 *order, *other;
    u32 *counters, *runs, *touched, *troubles, *tallies;
    u64 *index;
    Entry *entries;
    Trouble *room;
    const u32 *free;
    u64 *out;
    u64 base_ns, index_mask;
    u64 secret[4];
    // Records of the batch, and their network: 4 or 6.
    u32 count, network;
    // Entries that are known, and for how many there is memory. New ones follow those that are known; those of
    // connections that another one follows are put at the end, downward.
    u32 known, capacity;
    u32 room_known, room_capacity, free_count;
    u32 segment, segments, shift;
    // Of this launch: threads, and the first item of the list.
    u32 threads, first;
};

static_assert(sizeof(Job) == 200, "as in card.rs");

WEIR_FUNCTION inline u64 fold(u64 one, u64 other) {
#ifdef __CUDACC__
    return __umul64hi(one, other) ^ (one * other);
#else
    unsigned __int128 product = (unsigned __int128)one * other;
    return u64(product >> 64) ^ u64(product);
#endif
}

WEIR_FUNCTION inline u64 key_hash(const Key &key, const u64 *secret) {
    u64 low = fold(key.low[0] ^ secret[0], key.low[1] ^ secret[1]);
    u64 high = fold(key.high[0] ^ secret[2], key.high[1] ^ secret[3]);
    u64 rest = u64(key.network) << 32 | u64(key.high_port) << 16 | key.low_port;
    return fold(fold(low ^ rest ^ secret[3], high ^ secret[0]) ^ secret[1], secret[2]);
}

WEIR_FUNCTION inline bool same(const Key &one, const Key &other) {
    return one.low[1] == other.low[1] && one.high[1] == other.high[1] && one.low_port == other.low_port &&
           one.high_port == other.high_port && one.low[0] == other.low[0] && one.high[0] == other.high[0] &&
           one.network == other.network;
}

// The connection of a record, and which side sent it.
WEIR_FUNCTION inline u32 read_key(const Ipv4 &record, Key &key) {
    bool less = record.source != record.destination ? record.source > record.destination
                                                     : record.source_port > record.destination_port;
    key.low[0] = key.high[0] = 0;
    key.low[1] = less ? record.destination : record.source;
    key.high[1] = less ? record.source : record.destination;
    key.low_port = less ? record.destination_port : record.source_port;
    key.high_port = less ? record.source_port : record.destination_port;
    key.network = 4;
    return less;
}

WEIR_FUNCTION inline u32 read_key(const Ipv6 &record, Key &key) {
    bool less = record.source[0] != record.destination[0]   ? record.source[0] > record.destination[0]
                : record.source[1] != record.destination[1] ? record.source[1] > record.destination[1]
                                                            : record.source_port > record.destination_port;
    for (u32 half = 0; half < 2; half++) {
        key.low[half] = less ? record.destination[half] : record.source[half];
        key.high[half] = less ? record.source[half] : record.destination[half];
    }
    key.low_port = less ? record.destination_port : record.source_port;
    key.high_port = less ? record.source_port : record.destination_port;
    key.network = 6;
    return less;
}

// Facts::segment.
WEIR_FUNCTION inline Segment read_segment(const Facts &facts, const Facts *second, u64 base_ns) {
    bool bare = (facts.bits & KIND) == BARE;
    Segment segment;
    segment.time_ns = base_ns + facts.time_ns;
    segment.sequence = facts.sequence;
    segment.acknowledgment = facts.acknowledgment;
    segment.payload_bytes = bare ? 0 : facts.size;
    segment.mark = facts.mark;
    segment.window = bare ? facts.size : (facts.bits & KIND) == PAYLOAD;
    segment.maximum_segment = segment.window_scale = 0;
    segment.control = (facts.bits & BITS_CONTROL) | (facts.bits & BITS_ACK) << 1;
    segment.ttl = facts.ttl;
    segment.identified = (facts.bits & IDENTIFIED) != 0;
    if (second) {
        segment.payload_bytes = second->sequence;
        segment.window = second->acknowledgment & 0xffff;
        segment.maximum_segment = second->acknowledgment >> 16;
        segment.window_scale = second->time_ns & 0xff;
        segment.control |= second->bits;
    }
    return segment;
}

// ---- hash: one thread per record ----

template <class Record> WEIR_FUNCTION inline u64 hash_of(const Job &job, u32 number) {
    Key key;
    read_key(static_cast<const Record *>(job.records)[number], key);
    return key_hash(key, job.secret);
}

WEIR_FUNCTION inline void hash(const Job &job, u32 number) {
    u64 bits = job.network == 4 ? hash_of<Ipv4>(job, number) : hash_of<Ipv6>(job, number);
    job.order[number] = (bits & ~NUMBER) | number;
}
WEIR_THREADS(hash)

// ---- sort by the 8 bits above `shift`: digits of each segment are counted, the counts added up, the words moved ----

WEIR_FUNCTION inline u32 digit(const Job &job, u64 word) { return u32(word >> job.shift) & (DIGITS - 1); }

WEIR_FUNCTION inline u32 segment_length(const Job &job, u32 block) {
    u32 start = block * job.segment;
    return job.count - start < job.segment ? job.count - start : job.segment;
}

WEIR_FUNCTION inline void count(const Job &job, u32 block) {
    WEIR_SHARED u32 counts[DIGITS];
    EACH(at, DIGITS) counts[at] = 0;
    JOIN();
    EACH(at, segment_length(job, block)) WEIR_ADD(&counts[digit(job, job.order[block * job.segment + at])], 1u);
    JOIN();
    EACH(at, DIGITS) job.counters[at * job.segments + block] = counts[at];
}
WEIR_BLOCKS(count, 32)

// Every counter becomes the sum of those before it. One block.
WEIR_FUNCTION inline void scan(const Job &job, u32) {
    constexpr u32 PARTS = 1024;
    WEIR_SHARED u32 sums[2][PARTS];
    u32 all = DIGITS * job.segments;
    u32 length = (all + PARTS - 1) / PARTS;
    EACH(part, PARTS) {
        u32 sum = 0;
        for (u32 at = part * length; at < (part + 1) * length && at < all; at++) sum += job.counters[at];
        sums[0][part] = sum;
    }
    JOIN();
    u32 from = 0;
    for (u32 distance = 1; distance < PARTS; distance *= 2) {
        EACH(part, PARTS) sums[1 - from][part] = sums[from][part] + (part >= distance ? sums[from][part - distance] : 0);
        JOIN();
        from = 1 - from;
    }
    EACH(part, PARTS) {
        u32 sum = part > 0 ? sums[from][part - 1] : 0;
        for (u32 at = part * length; at < (part + 1) * length && at < all; at++) {
            u32 here = job.counters[at];
            job.counters[at] = sum;
            sum += here;
        }
    }
}
WEIR_BLOCKS(scan, 1024)

// The next place of a digit, in the order of the lanes of a warp, all of which are here.
WEIR_FUNCTION inline u32 next_place(u32 *next, u32 digit, bool is_there) {
#ifdef __CUDACC__
    u32 equal = __match_any_sync(~0u, is_there ? digit : DIGITS);
    u32 rank = __popc(equal & ((1u << (threadIdx.x & 31)) - 1));
    u32 place = is_there ? next[digit] + rank : 0;
    __syncwarp();
    if (is_there && rank == 0) next[digit] += __popc(equal);
    __syncwarp();
    return place;
#else
    return is_there ? next[digit]++ : 0;
#endif
}

WEIR_FUNCTION inline void scatter(const Job &job, u32 block) {
    WEIR_SHARED u32 next[DIGITS];
    EACH(at, DIGITS) next[at] = job.counters[at * job.segments + block];
    JOIN();
    u32 length = segment_length(job, block);
    for (u32 base = 0; base < length; base += LANES) {
        EACH(lane, LANES) {
            bool is_there = base + lane < length;
            u64 word = is_there ? job.order[block * job.segment + base + lane] : 0;
            u32 place = next_place(next, digit(job, word), is_there);
            if (is_there) job.other[place] = word;
        }
    }
}
WEIR_BLOCKS(scatter, 32)

// ---- runs: one thread per word. In which order they are listed is chance, and nothing depends on it ----

// Long runs are listed from the end.
WEIR_FUNCTION inline void heads(const Job &job, u32 at) {
    u64 bits = job.order[at] >> NUMBER_BITS;
    if (at > 0 && job.order[at - 1] >> NUMBER_BITS == bits) return;
    if (at + LANES < job.count && job.order[at + LANES] >> NUMBER_BITS == bits) {
        job.runs[job.count - 1 - WEIR_ADD(&job.tallies[LONG_RUNS], 1u)] = at;
    } else {
        job.runs[WEIR_ADD(&job.tallies[RUNS], 1u)] = at;
    }
}
WEIR_THREADS(heads)

// ---- walk: one thread per run, one block per long run. All packets of a connection are in one run, so no other thread
// has its entry ----

WEIR_FUNCTION inline void clear(Entry &entry, const Key &key, u64 hash) {
    u64 *words = reinterpret_cast<u64 *>(&entry);
    for (u32 at = 0; at < sizeof(Entry) / 8; at++) words[at] = 0;
    entry.key = key;
    entry.hash = hash;
    entry.first_ns = ~0ull;
}

// Table::entry. A key is written before the word that names it can be seen.
WEIR_FUNCTION inline Entry *find(const Job &job, const Key &key) {
    u64 hash = key_hash(key, job.secret);
    u32 number = ~0u;
    for (u64 place = hash & job.index_mask;; place = (place + 1) & job.index_mask) {
        u64 word = WEIR_READ(job.index + place);
        if (word == 0) {
            if (number == ~0u) {
                number = job.known + WEIR_ADD(&job.tallies[NEW], 1u);
                clear(job.entries[number], key, hash);
                WEIR_FENCE();
            }
            word = WEIR_SWAP(job.index + place, 0ull, hash >> 32 << 32 | (u64(number) + 1));
            if (word == 0) break;
        }
        WEIR_FENCE();
        if (word >> 32 == hash >> 32 && same(job.entries[u32(word) - 1].key, key)) {
            number = u32(word) - 1;
            break;
        }
    }
    job.touched[WEIR_ADD(&job.tallies[TOUCHED], 1u)] = number;
    return job.entries + number;
}

// Facts::opens.
WEIR_FUNCTION inline bool opens(const Facts &facts) {
    return (facts.bits & (BITS_ACK | CONTROL_SYN | CONTROL_RST)) == CONTROL_SYN && (facts.bits & KIND) != PACKET_UNREAD;
}

WEIR_FUNCTION inline void enter(const Job &job, const Room &room, Entry &entry, u32 side, const Facts &facts, const Facts *second) {
    if (opens(facts) && has_ended(entry.connection)) {
        job.entries[job.capacity - 1 - WEIR_ADD(&job.tallies[CLOSED], 1u)] = entry;
        Key key = entry.key;
        clear(entry, key, entry.hash);
    }
    u64 time_ns = job.base_ns + facts.time_ns;
    entry.first_ns = lower(entry.first_ns, time_ns);
    entry.last_ns = higher(entry.last_ns, time_ns);
    entry.packets[side]++;
    if ((facts.bits & KIND) == PACKET_UNREAD) {
        step(entry.connection, side, nullptr, room);
    } else {
        Segment segment = read_segment(facts, second, job.base_ns);
        if (!usual(entry.connection.hot[side], segment)) step(entry.connection, side, &segment, room);
    }
}

// On its way along a run.
struct Walker {
    Entry *entry;
    // The next record was read with the one before.
    u32 skips;
};

template <class Record>
WEIR_FUNCTION inline void go(const Job &job, Walker &walker, const Record &record, u32 number) {
    if (walker.skips) {
        walker.skips = 0;
        return;
    }
    Room room{job.room, job.free, job.free_count, job.room_known, job.room_capacity, &job.tallies[TAKEN]};
    Key key;
    u32 side = read_key(record, key);
    if (!walker.entry || !same(walker.entry->key, key)) walker.entry = find(job, key);
    walker.skips = record.facts.bits & SECOND;
    const Record *second = static_cast<const Record *>(job.records) + number + 1;
    enter(job, room, *walker.entry, side, record.facts, walker.skips ? &second->facts : nullptr);
}

template <class Record> WEIR_FUNCTION inline void walk_of(const Job &job, u32 run) {
    Walker walker{nullptr, 0};
    u32 at = job.runs[run];
    u64 bits = job.order[at] >> NUMBER_BITS;
    for (; at < job.count && job.order[at] >> NUMBER_BITS == bits; at++) {
        u32 number = u32(job.order[at] & NUMBER);
        go(job, walker, static_cast<const Record *>(job.records)[number], number);
    }
}

WEIR_FUNCTION inline void walk(const Job &job, u32 run) {
    if (run >= job.tallies[RUNS]) return;
    if (job.network == 4) {
        walk_of<Ipv4>(job, run);
    } else {
        walk_of<Ipv6>(job, run);
    }
}
WEIR_THREADS(walk)

// All lanes bring records, one walks: it does not wait for each.
template <class Record> WEIR_FUNCTION inline void walk_long_of(const Job &job, u32 run) {
    WEIR_SHARED Record records[LANES];
    WEIR_SHARED u32 numbers[LANES], count;
    WEIR_SHARED Walker walker;
    u32 start = job.runs[job.count - 1 - run];
    u64 bits = job.order[start] >> NUMBER_BITS;
    ALONE { walker = Walker{nullptr, 0}; }
    do {
        ALONE { count = 0; }
        JOIN();
        EACH(lane, LANES) {
            u64 word = start + lane < job.count ? job.order[start + lane] : ~bits << NUMBER_BITS;
            if (word >> NUMBER_BITS == bits) {
                numbers[lane] = u32(word & NUMBER);
                records[lane] = static_cast<const Record *>(job.records)[numbers[lane]];
                WEIR_ADD(&count, 1u);
            }
        }
        JOIN();
        ALONE {
            for (u32 at = 0; at < count; at++) go(job, walker, records[at], numbers[at]);
        }
        start += LANES;
        // The counter is set anew when all have read it.
        if (count < LANES) break;
        JOIN();
    } while (true);
}

WEIR_FUNCTION inline void walk_long(const Job &job, u32 run) {
    if (run >= job.tallies[LONG_RUNS]) return;
    if (job.network == 4) {
        walk_long_of<Ipv4>(job, run);
    } else {
        walk_long_of<Ipv6>(job, run);
    }
}
WEIR_BLOCKS(walk_long, 32)

// ---- for the host: entries that were touched, and what they have in the room. One thread per word of 8 octets ----

WEIR_FUNCTION inline void entries(const Job &job, u32 at) {
    constexpr u32 WORDS = sizeof(Entry) / 8;
    u32 number = job.touched[job.first + at / WORDS];
    job.out[at] = reinterpret_cast<const u64 *>(job.entries + number)[at % WORDS];
}
WEIR_THREADS(entries)

// One thread per entry: those touched, then those closed.
WEIR_FUNCTION inline void troubles(const Job &job, u32 at) {
    u32 touched = job.tallies[TOUCHED];
    u32 number = at < touched ? job.touched[at] : job.capacity - 1 - (at - touched);
    for (u32 side = 0; side < 2; side++) {
        u32 trouble = job.entries[number].connection.hot[side].trouble;
        if (trouble) job.troubles[WEIR_ADD(&job.tallies[TROUBLES], 1u)] = trouble - 1;
    }
}
WEIR_THREADS(troubles)

WEIR_FUNCTION inline void rooms(const Job &job, u32 at) {
    constexpr u32 WORDS = sizeof(Trouble) / 8;
    u32 number = job.troubles[job.first + at / WORDS];
    job.out[at] = reinterpret_cast<const u64 *>(job.room + number)[at % WORDS];
}
WEIR_THREADS(rooms)
