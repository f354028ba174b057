// Processing of a batch on a GPU: hash, stable sort, runs, and the changed table entries for the
// host. `src/cpu.rs` does the same on the CPU; `src/offload.rs` launches these kernels, in this
// order.
//
// Shapes: `batch` has `count` entries. `order` and `other` are words [count]: 40 bits of the hash
// above the number of the batch entry. The sort has one thread block of 32 threads per `sort_block`
// words.
//
// This file is compiled for a GPU and, for tests, as C++ with threads as loops
// (src/tests/simulated_cuda.h). Therefore
//   * a kernel is a function of its thread number (WEIR_THREADS) or of its block number (WEIR_BLOCKS);
//   * inside a block, EACH distributes a loop over the threads, ALONE runs on one thread, and JOIN is a
//     barrier. Between them only variables live that are WEIR_SHARED or equal in all threads.
#ifdef __CUDACC__
#define WEIR_FUNCTION __device__
#define WEIR_APART __device__ __noinline__
#define WEIR_SHARED __shared__
#define WEIR_ADD(number, more) atomicAdd(number, more)
#define WEIR_SWAP(word, from, to) atomicCAS(word, from, to)
#define WEIR_READ(word) (*static_cast<volatile unsigned long long *>(word))
#define WEIR_FENCE() __threadfence()
#define WEIR_THREADS(name)                                                                           \
    extern "C" __global__ void __launch_bounds__(128) weir_##name(const KernelArguments arguments) { \
        unsigned int thread = blockIdx.x * blockDim.x + threadIdx.x;                                 \
        if (thread < arguments.threads) name(arguments, thread);                                     \
    }
#define WEIR_BLOCKS(name, most)                                                                      \
    extern "C" __global__ void __launch_bounds__(most) weir_##name(const KernelArguments arguments) { \
        name(arguments, blockIdx.x);                                                                 \
    }
#define EACH(item, count) for (u32 item = threadIdx.x; item < (count); item += blockDim.x)
#define ALONE if (threadIdx.x == 0)
#define JOIN() __syncthreads()
#else
#include "../src/tests/simulated_cuda.h"
#endif

#include "tcp.h"

constexpr u32 NUMBER_BITS = 24;
constexpr u64 NUMBER = (1ull << NUMBER_BITS) - 1;
constexpr u32 DIGITS = 256;
constexpr u32 WARP = 32;

// packed.rs
struct PackedSegment {
    u32 sequence, acknowledgment, time_ns;
    u16 size;
    u8 ttl, bits;
    u32 digest;
};

constexpr u32 BITS_CONTROL = 7, BITS_ACK = 8, KIND = 0x30, BARE = 0, PAYLOAD = 0x10, KIND_UNREAD = 0x30;
constexpr u32 EXTENDED = 0x80;

struct PackedIpv4 {
    u32 source, destination;
    u16 source_port, destination_port;
    PackedSegment segment;
    u16 identification, unused;
};

struct PackedIpv6 {
    u64 source[2], destination[2];
    u16 source_port, destination_port;
    PackedSegment segment;
};

// key.rs
struct ConnectionKey {
    u64 low[2], high[2];
    u16 low_port, high_port;
    u32 network;
};

// table.rs
struct alignas(64) Entry {
    ConnectionKey key;
    u64 hash, packets[2], first_ns, last_ns, unused[6];
    Connection connection;
};

static_assert(sizeof(PackedSegment) == 20 && sizeof(PackedIpv4) == 36 && sizeof(PackedIpv6) == 56, "as in packed.rs");
static_assert(sizeof(ConnectionKey) == 40, "as in key.rs");
static_assert(sizeof(Entry) == 576, "as in table.rs");

// Counters of a batch: BatchCounters in device.rs.
enum Counter : u32 { RUNS, LONG_RUNS, NEW_ENTRIES, ENDED_ENTRIES, TOUCHED, ALLOCATED_ANOMALIES, LISTED_ANOMALIES };

// The argument of every kernel: device.rs.
struct KernelArguments {
    // Entries of the batch.
    const void *batch;
    // Sort words, and memory of the same size.
    u64 *order, *other;
    // Digit counts [256][sort_blocks]; first words of runs; numbers of table entries that were
    // touched; indices of their anomalies; counters by Counter.
    u32 *digit_counts, *runs, *touched, *anomalies, *counters;
    u64 *index;
    Entry *entries;
    PoolEntry *pool;
    // Free pool indices, and memory for gathered items.
    const u32 *free;
    u64 *out;
    u64 base_ns, index_mask;
    u64 hash_key[4];
    // Entries of the batch, and their network: 4 or 6.
    u32 count, network;
    // Table entries before this batch, and the number that fits into the memory. New entries follow
    // those; copies of entries of ended connections are stored at the end of the memory, downward.
    u32 known_entries, max_entries;
    u32 known_anomalies, max_anomalies, free_count;
    u32 sort_block, sort_blocks, shift;
    // Of this launch: threads, and the first item of the list.
    u32 threads, first;
};

static_assert(sizeof(KernelArguments) == 200, "as in device.rs");

WEIR_FUNCTION inline u64 fold(u64 one, u64 other) {
#ifdef __CUDACC__
    return __umul64hi(one, other) ^ (one * other);
#else
    unsigned __int128 product = (unsigned __int128)one * other;
    return u64(product >> 64) ^ u64(product);
#endif
}

WEIR_FUNCTION inline u64 key_hash(const ConnectionKey &key, const u64 *hash_key) {
    u64 low = fold(key.low[0] ^ hash_key[0], key.low[1] ^ hash_key[1]);
    u64 high = fold(key.high[0] ^ hash_key[2], key.high[1] ^ hash_key[3]);
    u64 rest = u64(key.network) << 32 | u64(key.high_port) << 16 | key.low_port;
    return fold(fold(low ^ rest ^ hash_key[3], high ^ hash_key[0]) ^ hash_key[1], hash_key[2]);
}

WEIR_FUNCTION inline bool same(const ConnectionKey &one, const ConnectionKey &other) {
    return one.low[1] == other.low[1] && one.high[1] == other.high[1] && one.low_port == other.low_port &&
           one.high_port == other.high_port && one.low[0] == other.low[0] && one.high[0] == other.high[0] &&
           one.network == other.network;
}

// Reads the key of a packet and returns the side that sent it.
WEIR_FUNCTION inline u32 read_key(const PackedIpv4 &packet, ConnectionKey &key) {
    bool less = packet.source != packet.destination ? packet.source > packet.destination
                                                     : packet.source_port > packet.destination_port;
    key.low[0] = key.high[0] = 0;
    key.low[1] = less ? packet.destination : packet.source;
    key.high[1] = less ? packet.source : packet.destination;
    key.low_port = less ? packet.destination_port : packet.source_port;
    key.high_port = less ? packet.source_port : packet.destination_port;
    key.network = 4;
    return less;
}

WEIR_FUNCTION inline u32 read_key(const PackedIpv6 &packet, ConnectionKey &key) {
    bool less = packet.source[0] != packet.destination[0]   ? packet.source[0] > packet.destination[0]
                : packet.source[1] != packet.destination[1] ? packet.source[1] > packet.destination[1]
                                                            : packet.source_port > packet.destination_port;
    for (u32 half = 0; half < 2; half++) {
        key.low[half] = less ? packet.destination[half] : packet.source[half];
        key.high[half] = less ? packet.source[half] : packet.destination[half];
    }
    key.low_port = less ? packet.destination_port : packet.source_port;
    key.high_port = less ? packet.source_port : packet.destination_port;
    key.network = 6;
    return less;
}

WEIR_FUNCTION inline u16 identification_of(const PackedIpv4 &packet) { return packet.identification; }

WEIR_FUNCTION inline u16 identification_of(const PackedIpv6 &) { return 0; }

// PackedSegment::unpack.
WEIR_FUNCTION inline Segment unpack(const PackedSegment &packed, const PackedSegment *extension, u16 identification, u64 base_ns) {
    bool bare = (packed.bits & KIND) == BARE;
    Segment segment;
    segment.time_ns = base_ns + packed.time_ns;
    segment.sequence = packed.sequence;
    segment.acknowledgment = packed.acknowledgment;
    segment.payload_bytes = bare ? 0 : packed.size;
    segment.digest = packed.digest;
    segment.window = bare ? packed.size : (packed.bits & KIND) == PAYLOAD;
    segment.maximum_segment_size = segment.window_scale = 0;
    segment.control = (packed.bits & BITS_CONTROL) | (packed.bits & BITS_ACK) << 1;
    segment.ttl = packed.ttl;
    segment.identification = identification;
    if (extension) {
        segment.payload_bytes = extension->sequence;
        segment.window = extension->acknowledgment & 0xffff;
        segment.maximum_segment_size = extension->acknowledgment >> 16;
        segment.window_scale = extension->time_ns & 0xff;
        segment.control |= extension->bits;
    }
    return segment;
}

// ---- hash: one thread per batch entry ----

template <class Packed> WEIR_FUNCTION inline u64 hash_of(const KernelArguments &arguments, u32 number) {
    ConnectionKey key;
    read_key(static_cast<const Packed *>(arguments.batch)[number], key);
    return key_hash(key, arguments.hash_key);
}

WEIR_FUNCTION inline void hash(const KernelArguments &arguments, u32 number) {
    u64 bits = arguments.network == 4 ? hash_of<PackedIpv4>(arguments, number) : hash_of<PackedIpv6>(arguments, number);
    arguments.order[number] = (bits & ~NUMBER) | number;
}
WEIR_THREADS(hash)

// ---- sort by the 8 bits above `shift`: count digits per block, sum the counts, move the words ----

WEIR_FUNCTION inline u32 digit(const KernelArguments &arguments, u64 word) { return u32(word >> arguments.shift) & (DIGITS - 1); }

WEIR_FUNCTION inline u32 block_length(const KernelArguments &arguments, u32 block) {
    u32 start = block * arguments.sort_block;
    return arguments.count - start < arguments.sort_block ? arguments.count - start : arguments.sort_block;
}

WEIR_FUNCTION inline void count_digits(const KernelArguments &arguments, u32 block) {
    WEIR_SHARED u32 counts[DIGITS];
    EACH(at, DIGITS) counts[at] = 0;
    JOIN();
    EACH(at, block_length(arguments, block)) WEIR_ADD(&counts[digit(arguments, arguments.order[block * arguments.sort_block + at])], 1u);
    JOIN();
    EACH(at, DIGITS) arguments.digit_counts[at * arguments.sort_blocks + block] = counts[at];
}
WEIR_BLOCKS(count_digits, 32)

// Replaces every count by the sum of the counts before it. One block.
WEIR_FUNCTION inline void prefix_sums(const KernelArguments &arguments, u32) {
    constexpr u32 PARTS = 1024;
    WEIR_SHARED u32 sums[2][PARTS];
    u32 all = DIGITS * arguments.sort_blocks;
    u32 length = (all + PARTS - 1) / PARTS;
    EACH(part, PARTS) {
        u32 sum = 0;
        for (u32 at = part * length; at < (part + 1) * length && at < all; at++) sum += arguments.digit_counts[at];
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
            u32 count = arguments.digit_counts[at];
            arguments.digit_counts[at] = sum;
            sum += count;
        }
    }
}
WEIR_BLOCKS(prefix_sums, 1024)

// The next place of a digit, in the order of the threads of a warp. All its threads call this.
WEIR_FUNCTION inline u32 next_place(u32 *next, u32 digit, bool is_valid) {
#ifdef __CUDACC__
    u32 equal = __match_any_sync(~0u, is_valid ? digit : DIGITS);
    u32 rank = __popc(equal & ((1u << (threadIdx.x & 31)) - 1));
    u32 place = is_valid ? next[digit] + rank : 0;
    __syncwarp();
    if (is_valid && rank == 0) next[digit] += __popc(equal);
    __syncwarp();
    return place;
#else
    return is_valid ? next[digit]++ : 0;
#endif
}

WEIR_FUNCTION inline void scatter(const KernelArguments &arguments, u32 block) {
    WEIR_SHARED u32 next[DIGITS];
    EACH(at, DIGITS) next[at] = arguments.digit_counts[at * arguments.sort_blocks + block];
    JOIN();
    u32 length = block_length(arguments, block);
    for (u32 base = 0; base < length; base += WARP) {
        EACH(lane, WARP) {
            bool is_valid = base + lane < length;
            u64 word = is_valid ? arguments.order[block * arguments.sort_block + base + lane] : 0;
            u32 place = next_place(next, digit(arguments, word), is_valid);
            if (is_valid) arguments.other[place] = word;
        }
    }
}
WEIR_BLOCKS(scatter, 32)

// ---- runs: one thread per word. The order of the lists varies, and no result depends on it ----

// Lists the first words of runs; those of long runs are listed from the end.
WEIR_FUNCTION inline void find_runs(const KernelArguments &arguments, u32 at) {
    u64 bits = arguments.order[at] >> NUMBER_BITS;
    if (at > 0 && arguments.order[at - 1] >> NUMBER_BITS == bits) return;
    if (at + WARP < arguments.count && arguments.order[at + WARP] >> NUMBER_BITS == bits) {
        arguments.runs[arguments.count - 1 - WEIR_ADD(&arguments.counters[LONG_RUNS], 1u)] = at;
    } else {
        arguments.runs[WEIR_ADD(&arguments.counters[RUNS], 1u)] = at;
    }
}
WEIR_THREADS(find_runs)

// ---- process: one thread per run, one block per long run. All packets of a connection are in one
// run, so that no other thread accesses its table entry ----

WEIR_FUNCTION inline void clear(Entry &entry, const ConnectionKey &key, u64 hash) {
    u64 *words = reinterpret_cast<u64 *>(&entry);
    for (u32 at = 0; at < sizeof(Entry) / 8; at++) words[at] = 0;
    entry.key = key;
    entry.hash = hash;
    entry.first_ns = ~0ull;
}

// Table::find_or_insert. The key of a new entry is written before its index slot.
WEIR_FUNCTION inline Entry *find_or_insert(const KernelArguments &arguments, const ConnectionKey &key) {
    u64 hash = key_hash(key, arguments.hash_key);
    u32 number = ~0u;
    for (u64 slot = hash & arguments.index_mask;; slot = (slot + 1) & arguments.index_mask) {
        u64 word = WEIR_READ(arguments.index + slot);
        if (word == 0) {
            if (number == ~0u) {
                number = arguments.known_entries + WEIR_ADD(&arguments.counters[NEW_ENTRIES], 1u);
                clear(arguments.entries[number], key, hash);
                WEIR_FENCE();
            }
            word = WEIR_SWAP(arguments.index + slot, 0ull, hash >> 32 << 32 | (u64(number) + 1));
            if (word == 0) break;
        }
        WEIR_FENCE();
        if (word >> 32 == hash >> 32 && same(arguments.entries[u32(word) - 1].key, key)) {
            number = u32(word) - 1;
            break;
        }
    }
    arguments.touched[WEIR_ADD(&arguments.counters[TOUCHED], 1u)] = number;
    return arguments.entries + number;
}

WEIR_FUNCTION inline void enter(const KernelArguments &arguments, const AnomalyPool &pool, Entry &entry, u32 side,
                                const PackedSegment &packed, const PackedSegment *extension, u16 identification) {
    bool is_unread = (packed.bits & KIND) == KIND_UNREAD;
    Segment segment = unpack(packed, extension, identification, arguments.base_ns);
    if (!is_unread && segment.opens_connection() && has_ended(entry.connection)) {
        arguments.entries[arguments.max_entries - 1 - WEIR_ADD(&arguments.counters[ENDED_ENTRIES], 1u)] = entry;
        ConnectionKey key = entry.key;
        clear(entry, key, entry.hash);
    }
    entry.first_ns = lower(entry.first_ns, segment.time_ns);
    entry.last_ns = higher(entry.last_ns, segment.time_ns);
    entry.packets[side]++;
    if (is_unread) {
        classify_segment(entry.connection, side, nullptr, pool);
    } else if (!take_fast(entry.connection, side, segment)) {
        classify_segment(entry.connection, side, &segment, pool);
    }
}

// State while a run is processed.
struct Run {
    Entry *entry;
    // The next batch entry is an extension that was read with its packet.
    u32 skip_next;
};

template <class Packed>
WEIR_FUNCTION inline void process(const KernelArguments &arguments, Run &run, const Packed &packet, u32 number) {
    if (run.skip_next) {
        run.skip_next = 0;
        return;
    }
    AnomalyPool pool{arguments.pool, arguments.free, arguments.free_count, arguments.known_anomalies, arguments.max_anomalies,
                     &arguments.counters[ALLOCATED_ANOMALIES]};
    ConnectionKey key;
    u32 side = read_key(packet, key);
    if (!run.entry || !same(run.entry->key, key)) run.entry = find_or_insert(arguments, key);
    run.skip_next = packet.segment.bits & EXTENDED;
    const Packed *extension = static_cast<const Packed *>(arguments.batch) + number + 1;
    enter(arguments, pool, *run.entry, side, packet.segment, run.skip_next ? &extension->segment : nullptr,
          identification_of(packet));
}

template <class Packed> WEIR_FUNCTION inline void process_run(const KernelArguments &arguments, u32 first) {
    Run run{nullptr, 0};
    u32 at = arguments.runs[first];
    u64 bits = arguments.order[at] >> NUMBER_BITS;
    for (; at < arguments.count && arguments.order[at] >> NUMBER_BITS == bits; at++) {
        u32 number = u32(arguments.order[at] & NUMBER);
        process(arguments, run, static_cast<const Packed *>(arguments.batch)[number], number);
    }
}

WEIR_FUNCTION inline void process_runs(const KernelArguments &arguments, u32 run) {
    if (run >= arguments.counters[RUNS]) return;
    if (arguments.network == 4) {
        process_run<PackedIpv4>(arguments, run);
    } else {
        process_run<PackedIpv6>(arguments, run);
    }
}
WEIR_THREADS(process_runs)

// All threads of the block load packets; one processes them, without waiting for each load.
template <class Packed> WEIR_FUNCTION inline void process_long_run(const KernelArguments &arguments, u32 first) {
    WEIR_SHARED Packed packets[WARP];
    WEIR_SHARED u32 numbers[WARP], count;
    WEIR_SHARED Run run;
    u32 start = arguments.runs[arguments.count - 1 - first];
    u64 bits = arguments.order[start] >> NUMBER_BITS;
    ALONE { run = Run{nullptr, 0}; }
    do {
        ALONE { count = 0; }
        JOIN();
        EACH(lane, WARP) {
            u64 word = start + lane < arguments.count ? arguments.order[start + lane] : ~bits << NUMBER_BITS;
            if (word >> NUMBER_BITS == bits) {
                numbers[lane] = u32(word & NUMBER);
                packets[lane] = static_cast<const Packed *>(arguments.batch)[numbers[lane]];
                WEIR_ADD(&count, 1u);
            }
        }
        JOIN();
        ALONE {
            for (u32 at = 0; at < count; at++) process(arguments, run, packets[at], numbers[at]);
        }
        start += WARP;
        // All threads read the count before one resets it.
        if (count < WARP) break;
        JOIN();
    } while (true);
}

WEIR_FUNCTION inline void process_long_runs(const KernelArguments &arguments, u32 run) {
    if (run >= arguments.counters[LONG_RUNS]) return;
    if (arguments.network == 4) {
        process_long_run<PackedIpv4>(arguments, run);
    } else {
        process_long_run<PackedIpv6>(arguments, run);
    }
}
WEIR_BLOCKS(process_long_runs, 32)

// ---- for the host: touched table entries and their anomalies. One thread per word of 8 bytes ----

WEIR_FUNCTION inline void gather_entries(const KernelArguments &arguments, u32 at) {
    constexpr u32 WORDS = sizeof(Entry) / 8;
    u32 number = arguments.touched[arguments.first + at / WORDS];
    arguments.out[at] = reinterpret_cast<const u64 *>(arguments.entries + number)[at % WORDS];
}
WEIR_THREADS(gather_entries)

// One thread per table entry: those touched, then those of ended connections.
WEIR_FUNCTION inline void list_anomalies(const KernelArguments &arguments, u32 at) {
    u32 touched = arguments.counters[TOUCHED];
    u32 number = at < touched ? arguments.touched[at] : arguments.max_entries - 1 - (at - touched);
    for (u32 side = 0; side < 2; side++) {
        u32 anomaly = arguments.entries[number].connection.hot[side].entry_number;
        if (anomaly) arguments.anomalies[WEIR_ADD(&arguments.counters[LISTED_ANOMALIES], 1u)] = anomaly - 1;
    }
}
WEIR_THREADS(list_anomalies)

WEIR_FUNCTION inline void gather_anomalies(const KernelArguments &arguments, u32 at) {
    constexpr u32 WORDS = sizeof(PoolEntry) / 8;
    u32 index = arguments.anomalies[arguments.first + at / WORDS];
    arguments.out[at] = reinterpret_cast<const u64 *>(arguments.pool + index)[at % WORDS];
}
WEIR_THREADS(gather_anomalies)
