// The TCP state machine for a GPU: repeats crates/meter/tcp/src/{side,classifier,history,holes,pool,times}.rs.
//
// The structures have the layout of those there, so that memory is copied as it is. The functions
// have the names of those they repeat; read those for the reasons. Tests compare both byte by byte.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// rules.rs
constexpr u32 HISTORY = 4;
constexpr u32 DEEP_HISTORY = 64;
constexpr u32 LATE_AGE = HISTORY - 1, LATE_AGE_DEEP = DEEP_HISTORY / 2;
constexpr u32 MAX_HOLES = 32;
constexpr u64 MAX_WINDOW = 1ull << 30;
constexpr u32 ACKNOWLEDGMENT_JUMP = 1u << 28;
constexpr u64 DEFAULT_REORDERING_NS = 3000000;
constexpr u32 IDENTIFIED_DUPLICATE_TICKS = 48;
constexpr u32 DUPLICATE_TICKS = 1;
constexpr u32 TICK_BITS = 24;
constexpr u16 COUNTED_IDENTIFICATIONS = 1 << 10;
constexpr u16 NEWER_IDENTIFICATIONS = 1 << 13;
constexpr u64 IDENTIFIED_REORDERING_NS = 200000000;

// Control bits as on the wire.
constexpr u32 CONTROL_FIN = 1, CONTROL_SYN = 2, CONTROL_RST = 4, CONTROL_ACK = 16;
// Segment::FIRST_FRAGMENT, among them.
constexpr u32 CONTROL_FIRST_FRAGMENT = 32;

// HotSide.flags_and_history_number
constexpr u32 IN_ORDER_LIMIT = 1u << 31;
constexpr u32 STARTED = 1, ACKED = 2, ZERO_WINDOW = 4, SYN = 8, FIN = 16, LAST_OUT_OF_WINDOW = 32, OPTIONS = 64, ENDED = 128, HAS_DEEP_HISTORY = 256;
constexpr u32 REMEMBERED_SHIFT = 10;
// ColdSide.scale_and_flags
constexpr u32 SYN_ACKED = 16, SEVERAL_SYN_OR_FIN = 32, POOL_FULL = 64, RESET = 128;
// PoolEntry.degradation
constexpr u32 DEGRADED_HOLES = 1, DEGRADED_DUPLICATES = 2, DEGRADED_JUMP = 4, DEGRADED_REUSED = 8, DEGRADED_UNREAD = 16;

// class.rs
enum SegmentClass : u32 {
    UNREAD, DUPLICATE, ROUTED_DUPLICATE, RESETS, SYNS, SYN_RETRANSMISSION, OUT_OF_WINDOW, KEEP_ALIVE, ZERO_WINDOW_PROBE,
    ACKNOWLEDGMENT, DUPLICATE_ACKNOWLEDGMENT, IN_ORDER, RETRANSMISSION, OUT_OF_ORDER, UNSEEN_RETRANSMISSION, CLASSES
};

struct HotSide {
    u64 next_position, unique_bytes;
    u32 in_order, acknowledged;
    u16 window, flags_and_history_number;
    u32 entry_number;
    u64 recent[HISTORY];

    WEIR_FUNCTION u32 history_number() const { return flags_and_history_number >> REMEMBERED_SHIFT; }
};

struct ColdSide {
    u64 lowest_position, started_ns, syn_ns, last_syn_ns, fin_position, fin_ns, handshake_rtt_ns;
    u16 maximum_segment_size, syn_window;
    u8 scale_and_flags, syns, fins, resets;
};

// times.rs
struct ResponseTimes {
    u64 count, first_ns, max_ns, sum_ns;
};

struct RoundTripTimes {
    u64 count, min_ns, max_ns, sum_ns;
};

struct Waiting {
    u64 request_ns, timed_ns;
    u32 request_end, timed_end;
    u16 has_request, identification;
    u32 has_timed;
};

struct Measured {
    ResponseTimes responses;
    RoundTripTimes round_trips;
};

struct Times {
    Waiting waiting[2];
    Measured measured[2];
};

struct Connection {
    HotSide hot[2];
    ColdSide cold[2];
    Times times;
};

struct SegmentCount {
    u64 segments, bytes;
};

struct Hole {
    u64 start, length, since_ns;
    u16 identification;
    WEIR_FUNCTION u64 end() const { return start + length; }
};

struct Holes {
    u32 count;
    u32 lengths[MAX_HOLES + 1];
    u64 starts[MAX_HOLES + 1], since_ns[MAX_HOLES + 1];
    u16 identifications[MAX_HOLES + 1], unused[3];

    WEIR_FUNCTION Hole get(u32 at) const { return Hole{starts[at], lengths[at], since_ns[at], identifications[at]}; }

    WEIR_FUNCTION void set(u32 at, const Hole &hole) {
        starts[at] = hole.start;
        lengths[at] = u32(hole.length);
        since_ns[at] = hole.since_ns;
        identifications[at] = hole.identification;
    }

    WEIR_FUNCTION u64 missing_bytes() const {
        u64 sum = 0;
        for (u32 at = 0; at < count; at++) sum += lengths[at];
        return sum;
    }

    WEIR_FUNCTION void push(const Hole &hole) { set(count++, hole); }

    WEIR_FUNCTION void insert(u32 before, const Hole &hole) {
        for (u32 at = count; at > before; at--) set(at, get(at - 1));
        set(before, hole);
        count++;
    }

    WEIR_FUNCTION Hole remove(u32 hole) {
        Hole removed = get(hole);
        for (u32 at = hole + 1; at < count; at++) set(at - 1, get(at));
        count--;
        return removed;
    }

    WEIR_FUNCTION void fill(u64 start, u64 end) {
        u32 at = 0;
        while (at < count) {
            Hole hole = get(at);
            if (hole.start >= end) break;
            if (hole.end() <= start) {
                at++;
                continue;
            }
            u64 below = start > hole.start ? start - hole.start : 0;
            u64 above = hole.end() > end ? hole.end() - end : 0;
            if (below == 0 && above == 0) {
                remove(at);
            } else if (above == 0) {
                set(at, Hole{hole.start, below, hole.since_ns, hole.identification});
                at++;
            } else if (below == 0) {
                set(at, Hole{end, above, hole.since_ns, hole.identification});
                break;
            } else {
                set(at, Hole{hole.start, below, hole.since_ns, hole.identification});
                insert(at + 1, Hole{end, above, hole.since_ns, hole.identification});
                break;
            }
        }
    }
};

struct DeepHistory {
    u32 digests[DEEP_HISTORY], rest[DEEP_HISTORY];

    WEIR_FUNCTION void start(const u64 *recent, u32 number) {
        clear();
        for (u32 earlier = number + DEEP_HISTORY - HISTORY; earlier < number + DEEP_HISTORY; earlier++) {
            set(earlier, recent[earlier % HISTORY]);
        }
    }

    WEIR_FUNCTION void clear() {
        for (u32 at = 0; at < DEEP_HISTORY; at++) digests[at] = rest[at] = 0;
    }

    WEIR_FUNCTION void set(u32 number, u64 entry) {
        digests[number % DEEP_HISTORY] = u32(entry >> 32);
        rest[number % DEEP_HISTORY] = u32(entry);
    }

    WEIR_FUNCTION u64 get(u32 number) const {
        return u64(digests[number % DEEP_HISTORY]) << 32 | rest[number % DEEP_HISTORY];
    }

    WEIR_FUNCTION bool contains(u32 digest) const {
        bool any = false;
        for (u32 at = 0; at < DEEP_HISTORY; at++) any |= digests[at] == digest;
        return any;
    }
};

struct PoolEntry {
    SegmentCount classes[CLASSES];
    u64 retransmitted_bytes, unique_bytes, partial_retransmissions, spurious_retransmissions, fins, zero_windows;
    u64 largest_hole_bytes, missing_bytes;
    u32 out_of_window_sequence;
    u8 degradation, unused[3];
    Holes holes;
    DeepHistory history;

    WEIR_FUNCTION void reset() {
        for (u32 number = 0; number < CLASSES; number++) classes[number] = SegmentCount{0, 0};
        retransmitted_bytes = unique_bytes = partial_retransmissions = spurious_retransmissions = fins = zero_windows = 0;
        largest_hole_bytes = missing_bytes = 0;
        out_of_window_sequence = 0;
        degradation = 0;
        holes.count = 0;
    }
};

static_assert(sizeof(HotSide) == 64 && sizeof(ColdSide) == 64 && sizeof(Times) == 192 && sizeof(Connection) == 448, "as in connection.rs");
static_assert(sizeof(Holes) == 736 && sizeof(PoolEntry) == 1560, "as in pool.rs");

// The anomaly pool. Threads allocate concurrently, so the index that a direction gets varies.
struct AnomalyPool {
    PoolEntry *entries;
    // Indices to allocate first, the last one first; then those from `known` on, below `capacity`.
    const u32 *free;
    u32 free_count, known, capacity;
    u32 *allocated;

    // Returns an index plus 1, or 0 if the pool is full.
    WEIR_FUNCTION u32 allocate() const {
        u32 before = WEIR_ADD(allocated, 1u);
        u32 index = before < free_count ? free[free_count - 1 - before] : known + (before - free_count);
        if (index >= capacity) return 0;
        entries[index].reset();
        return index + 1;
    }
};

struct Segment {
    u64 time_ns;
    u32 sequence, acknowledgment, payload_bytes, digest;
    u32 window, maximum_segment_size, window_scale, control, ttl;
    u16 identification;

    WEIR_FUNCTION bool has(u32 bits) const { return (control & bits) != 0; }

    WEIR_FUNCTION bool opens_connection() const {
        return (control & (CONTROL_SYN | CONTROL_ACK | CONTROL_RST)) == CONTROL_SYN;
    }
};

WEIR_FUNCTION inline u32 tick(u64 time_ns) { return u32(time_ns >> 20) & ((1u << TICK_BITS) - 1); }

WEIR_FUNCTION inline u32 ticks_between(u32 one, u32 other) {
    u32 ahead = (one - other) << (32 - TICK_BITS) >> (32 - TICK_BITS);
    u32 behind = (1u << TICK_BITS) - ahead;
    return ahead < behind ? ahead : behind;
}

WEIR_FUNCTION inline bool is_sent_once(const Segment &segment) {
    return !segment.has(CONTROL_RST) && (segment.payload_bytes > 0 || segment.has(CONTROL_SYN | CONTROL_FIN));
}

WEIR_FUNCTION inline bool is_after(u32 one, u32 other) { return i32(one - other) > 0; }

WEIR_FUNCTION inline u64 nearest_position(u64 known, u32 sequence) { return known + u64(i64(i32(sequence - u32(known)))); }

WEIR_FUNCTION inline u64 initial_position(u32 sequence) { return 1ull << 32 | sequence; }

WEIR_FUNCTION inline u64 lower(u64 one, u64 other) { return one < other ? one : other; }

WEIR_FUNCTION inline u64 higher(u64 one, u64 other) { return one > other ? one : other; }

WEIR_FUNCTION inline u64 overlap(u64 start, u64 end, u64 other_start, u64 other_end) {
    u64 from = higher(start, other_start), to = lower(end, other_end);
    return to > from ? to - from : 0;
}

// A range of positions compared with those seen so far.
struct Overlap {
    u64 seen, missing_since_ns;
    u16 identification;
};

WEIR_FUNCTION inline bool is_ahead(u16 one, u16 other, u16 most) { return one != other && u16(one - other) <= most; }

WEIR_FUNCTION inline u16 counted_identification(u16 before, u16 identification) {
    return before == 0 || is_ahead(identification, before, COUNTED_IDENTIFICATIONS) ? identification : u16(0);
}

WEIR_FUNCTION inline u64 saturating_sum(u64 one, u64 other) { return one + other < one ? ~0ull : one + other; }

WEIR_FUNCTION inline u64 history_entry(const Segment &segment) {
    return u64(segment.digest) << 32 | u64(segment.ttl) << 24 | tick(segment.time_ns);
}

// HotSide::remember.
WEIR_FUNCTION inline void remember(HotSide &hot, const Segment &segment) {
    hot.recent[hot.history_number() % HISTORY] = history_entry(segment);
    hot.flags_and_history_number = u16(hot.flags_and_history_number + (1u << REMEMBERED_SHIFT));
}

WEIR_FUNCTION inline bool reaches(u32 acknowledgment, u32 end) { return acknowledgment - end < MAX_WINDOW; }

// Times::acknowledge, answer, request and time_segment.
WEIR_FUNCTION inline void acknowledge_timed(Times &times, u32 side, const Segment &segment) {
    Waiting &waiting = times.waiting[1 - side];
    if (!waiting.has_timed || !reaches(segment.acknowledgment, waiting.timed_end)) return;
    waiting.has_timed = 0;
    if (segment.time_ns < waiting.timed_ns) return;
    u64 time_ns = segment.time_ns - waiting.timed_ns;
    RoundTripTimes &trips = times.measured[side].round_trips;
    if (trips.count == 0 || time_ns < trips.min_ns) trips.min_ns = time_ns;
    trips.count++;
    trips.max_ns = higher(trips.max_ns, time_ns);
    trips.sum_ns = saturating_sum(trips.sum_ns, time_ns);
}

WEIR_FUNCTION inline void answer(Times &times, u32 side, const Segment &segment) {
    Waiting &waiting = times.waiting[1 - side];
    if (!waiting.has_request || !reaches(segment.acknowledgment, waiting.request_end)) return;
    waiting.has_request = 0;
    if (segment.time_ns < waiting.request_ns) return;
    u64 time_ns = segment.time_ns - waiting.request_ns;
    ResponseTimes &responses = times.measured[side].responses;
    if (responses.count == 0) responses.first_ns = time_ns;
    responses.count++;
    responses.max_ns = higher(responses.max_ns, time_ns);
    responses.sum_ns = saturating_sum(responses.sum_ns, time_ns);
}

WEIR_FUNCTION inline void request(Times &times, u32 side, u32 end, u64 time_ns) {
    Waiting &waiting = times.waiting[side];
    waiting.request_ns = time_ns;
    waiting.request_end = end;
    waiting.has_request = 1;
}

WEIR_FUNCTION inline void time_segment(Times &times, u32 side, u32 end, u64 time_ns) {
    Waiting &waiting = times.waiting[side];
    if (waiting.has_timed) return;
    waiting.timed_ns = time_ns;
    waiting.timed_end = end;
    waiting.has_timed = 1;
}

// HotSide::classify_fast.
WEIR_FUNCTION inline bool classify_fast(HotSide &hot, const Segment &segment) {
    u32 advance = segment.acknowledgment - hot.acknowledged;
    if (segment.control != CONTROL_ACK || segment.window == 0 || advance >= ACKNOWLEDGMENT_JUMP) return false;
    u32 next = u32(hot.next_position);
    if (segment.payload_bytes == 0) {
        bool known = (hot.flags_and_history_number & (ACKED | ZERO_WINDOW | HAS_DEEP_HISTORY)) == ACKED;
        if (!known || advance == 0 || segment.sequence == next - 1) return false;
        hot.window = u16(segment.window);
    } else {
        bool known = (hot.flags_and_history_number & (STARTED | ACKED | ZERO_WINDOW | LAST_OUT_OF_WINDOW | HAS_DEEP_HISTORY)) == (STARTED | ACKED) &&
                     hot.in_order < IN_ORDER_LIMIT;
        if (!known || segment.sequence != next || segment.payload_bytes - 2 >= 1u << 16) return false;
        hot.next_position += segment.payload_bytes;
        hot.unique_bytes += segment.payload_bytes;
        hot.in_order++;
    }
    hot.acknowledged = segment.acknowledgment;
    remember(hot, segment);
    return true;
}

// Connection::take_fast.
WEIR_FUNCTION inline bool take_fast(Connection &connection, u32 side, const Segment &segment) {
    if (!classify_fast(connection.hot[side], segment)) return false;
    acknowledge_timed(connection.times, side, segment);
    if (segment.payload_bytes > 0) {
        u32 end = segment.sequence + segment.payload_bytes;
        answer(connection.times, side, segment);
        request(connection.times, side, end, segment.time_ns);
        time_segment(connection.times, side, end, segment.time_ns);
        connection.times.waiting[side].identification = segment.identification;
    }
    return true;
}

// One side while it processes a segment.
struct Classifier {
    u32 side;
    HotSide &hot;
    ColdSide &cold;
    const HotSide &peer;
    const ColdSide &peer_cold;
    Times &times;
    const AnomalyPool &pool;

    // Without a segment: a packet without a whole TCP header.
    WEIR_FUNCTION void classify_and_count(const Segment *segment) const {
        move_in_order_count();
        if (segment) {
            count(classify(*segment), segment->payload_bytes);
        } else {
            degrade(DEGRADED_UNREAD);
            count(UNREAD, 0);
        }
    }

    WEIR_FUNCTION void move_in_order_count() const {
        if (hot.in_order >= IN_ORDER_LIMIT) {
            if (PoolEntry *more = entry()) {
                more->classes[IN_ORDER].segments += hot.in_order;
                hot.in_order = 0;
            }
        }
    }

    WEIR_FUNCTION void count(SegmentClass what, u32 payload_bytes) const {
        u8 *counter = nullptr;
        if (what == ACKNOWLEDGMENT) return;
        if (what == IN_ORDER) {
            hot.in_order += hot.in_order < ~0u;
            return;
        }
        if (what == SYNS) counter = &cold.syns;
        if (what == RESETS) counter = &cold.resets;
        if (counter && payload_bytes == 0 && *counter < 255) {
            ++*counter;
        } else if (PoolEntry *more = entry()) {
            more->classes[what].segments++;
            more->classes[what].bytes += payload_bytes;
        }
    }

    WEIR_FUNCTION SegmentClass classify(const Segment &segment) const {
        if (segment.has(CONTROL_FIRST_FRAGMENT)) degrade(DEGRADED_UNREAD);
        SegmentClass what;
        if (duplicate(segment, what)) return what;
        if (segment.has(CONTROL_RST)) {
            hot.flags_and_history_number |= ENDED;
            cold.scale_and_flags |= RESET;
            what = RESETS;
        } else if (segment.has(CONTROL_SYN)) {
            what = synchronize(segment);
        } else {
            what = receive(segment);
        }
        if (what == OUT_OF_WINDOW) return what;
        if (what != RESETS) {
            hot.flags_and_history_number = u16(segment.window == 0 ? hot.flags_and_history_number | ZERO_WINDOW : hot.flags_and_history_number & ~ZERO_WINDOW);
            if (segment.window == 0) {
                if (PoolEntry *more = entry()) more->zero_windows++;
            }
            if (segment.has(CONTROL_ACK)) acknowledge(segment);
            measure_times(segment, what);
        }
        remember_segment(segment);
        return what;
    }

    WEIR_FUNCTION bool duplicate(const Segment &segment, SegmentClass &what) const {
        if (segment.identification == 0 && !is_sent_once(segment)) return false;
        u32 limit = segment.identification != 0 ? IDENTIFIED_DUPLICATE_TICKS : DUPLICATE_TICKS;
        u32 next = hot.history_number();
        const DeepHistory *history = hot.flags_and_history_number & HAS_DEEP_HISTORY ? &existing_entry()->history : nullptr;
        if (history && !history->contains(segment.digest)) return false;
        u32 length = history ? DEEP_HISTORY : HISTORY;
        for (u32 age = 0; age < length; age++) {
            u32 number = next - age - 1;
            u64 entry = history ? history->get(number) : hot.recent[number % HISTORY];
            bool is_near = ticks_between(u32(entry) & 0x00ffffff, tick(segment.time_ns)) <= limit;
            if (u32(entry >> 32) != segment.digest || !is_near) continue;
            if (age >= (history ? LATE_AGE_DEEP : LATE_AGE)) degrade(DEGRADED_DUPLICATES);
            if (!history) start_deep_history();
            what = u8(entry >> 24) == segment.ttl ? DUPLICATE : ROUTED_DUPLICATE;
            return true;
        }
        return false;
    }

    WEIR_FUNCTION void start_deep_history() const {
        u32 next = hot.history_number();
        if (PoolEntry *more = entry()) {
            more->history.start(hot.recent, next);
            hot.flags_and_history_number |= HAS_DEEP_HISTORY;
        }
    }

    // Classifier::remember.
    WEIR_FUNCTION void remember_segment(const Segment &segment) const {
        u32 number = hot.history_number();
        remember(hot, segment);
        if (hot.flags_and_history_number & HAS_DEEP_HISTORY) existing_entry()->history.set(number, history_entry(segment));
    }

    WEIR_FUNCTION void clear_history() const {
        for (u32 at = 0; at < HISTORY; at++) hot.recent[at] = 0;
        if (hot.flags_and_history_number & HAS_DEEP_HISTORY) existing_entry()->history.clear();
    }

    WEIR_FUNCTION SegmentClass synchronize(const Segment &segment) const {
        if (segment.payload_bytes >= MAX_WINDOW) return OUT_OF_WINDOW;
        u32 first = segment.sequence + 1;
        bool is_known = (hot.flags_and_history_number & SYN) && u32(cold.lowest_position) == first;
        if (!is_known) accept_syn(segment, first);
        cold.last_syn_ns = segment.time_ns;
        SegmentClass what = is_known ? SYN_RETRANSMISSION : SYNS;
        account_positions(cold.lowest_position, segment, what);
        return what;
    }

    WEIR_FUNCTION void accept_syn(const Segment &segment, u32 first) const {
        u32 below = u32(cold.lowest_position) - first;
        if (!(hot.flags_and_history_number & STARTED) || (hot.flags_and_history_number & SYN) || below >= MAX_WINDOW) restart(segment, initial_position(first));
        u64 lowest = cold.lowest_position;
        u64 position = nearest_position(lowest, first);
        if (position < lowest) {
            cold.lowest_position = position;
            insert_lowest_hole(position, lowest);
            limit_holes();
        }
        bool has_ack = segment.has(CONTROL_ACK);
        u64 handshake_rtt_ns = has_ack ? time_since_peer_syn(segment) : 0;
        hot.flags_and_history_number |= SYN | OPTIONS;
        cold.syn_ns = segment.time_ns;
        cold.syn_window = u16(segment.window);
        cold.maximum_segment_size = u16(segment.maximum_segment_size);
        cold.scale_and_flags =
            u8((cold.scale_and_flags & ~(SYN_ACKED | 0xfu)) | segment.window_scale | (has_ack ? SYN_ACKED : 0));
        cold.handshake_rtt_ns = handshake_rtt_ns;
    }

    WEIR_FUNCTION void restart(const Segment &segment, u64 lowest) const {
        if (hot.flags_and_history_number & STARTED) {
            if (!(hot.flags_and_history_number & ENDED) && !(peer.flags_and_history_number & ENDED)) degrade(DEGRADED_REUSED);
            give_up_positions();
        }
        start(lowest, segment);
        hot.flags_and_history_number &= u16(~(ENDED | ACKED));
        clear_history();
        hot.acknowledged = 0;
        hot.window = 0;
    }

    WEIR_FUNCTION void start(u64 lowest, const Segment &segment) const {
        cold.lowest_position = hot.next_position = lowest;
        cold.started_ns = segment.time_ns;
        hot.flags_and_history_number |= STARTED;
        times.waiting[side] = Waiting{};
    }

    WEIR_FUNCTION void give_up_positions() const {
        if (PoolEntry *more = existing_entry()) {
            more->missing_bytes += more->holes.missing_bytes();
            more->holes.count = 0;
        }
        hot.flags_and_history_number &= u16(~(SYN | LAST_OUT_OF_WINDOW));
        cold.scale_and_flags |= SEVERAL_SYN_OR_FIN;
        clear_history();
    }

    WEIR_FUNCTION SegmentClass receive(const Segment &segment) const {
        u32 sequence = segment.sequence, payload = segment.payload_bytes;
        bool fin = segment.has(CONTROL_FIN);
        u32 next = u32(hot.next_position);
        if ((hot.flags_and_history_number & STARTED) && !fin) {
            bool repeats_last = payload <= 1 && sequence == next - 1;
            bool may_probe = sequence == next || (repeats_last && cold.lowest_position < hot.next_position);
            if (payload == 1 && may_probe && (peer.flags_and_history_number & ZERO_WINDOW)) {
                hot.flags_and_history_number &= u16(~LAST_OUT_OF_WINDOW);
                account_positions(hot.next_position - repeats_last, segment, ZERO_WINDOW_PROBE);
                return ZERO_WINDOW_PROBE;
            }
            if (repeats_last) return KEEP_ALIVE;
        }
        if (payload == 0 && !fin) return receive_acknowledgment(segment);
        if (!(hot.flags_and_history_number & STARTED)) {
            if (payload >= MAX_WINDOW) return OUT_OF_WINDOW;
            return start_mid_stream(segment);
        }
        return receive_data(segment, u64(payload) + fin);
    }

    WEIR_FUNCTION SegmentClass receive_acknowledgment(const Segment &segment) const {
        bool repeats = segment.has(CONTROL_ACK) && (hot.flags_and_history_number & ACKED) && hot.acknowledged == segment.acknowledgment &&
                       hot.window == segment.window && segment.window != 0;
        bool outstanding = (peer.flags_and_history_number & STARTED) && is_after(u32(peer.next_position), segment.acknowledgment);
        hot.window = u16(segment.window);
        return repeats && outstanding ? DUPLICATE_ACKNOWLEDGMENT : ACKNOWLEDGMENT;
    }

    WEIR_FUNCTION SegmentClass receive_data(const Segment &segment, u64 length) const {
        u64 next = hot.next_position;
        u64 start = nearest_position(next, segment.sequence);
        u64 end = start + length;
        bool before_syn = (hot.flags_and_history_number & SYN) && start < cold.lowest_position;
        if (before_syn || start + MAX_WINDOW <= next || next + MAX_WINDOW <= end) {
            return receive_out_of_window(segment, before_syn && end > cold.lowest_position);
        }
        hot.flags_and_history_number &= u16(~LAST_OUT_OF_WINDOW);
        if (start >= next) {
            account_positions(start, segment, IN_ORDER);
            return IN_ORDER;
        }
        Overlap overlap = compare_with_seen(start, end);
        u64 positions_seen = overlap.seen;
        SegmentClass what = positions_seen > 0               ? RETRANSMISSION
                            : is_reordered(segment, overlap) ? OUT_OF_ORDER
                                                             : UNSEEN_RETRANSMISSION;
        account_positions(start, segment, what);
        if (what == RETRANSMISSION) {
            bool is_spurious = (peer.flags_and_history_number & ACKED) && !is_after(u32(end), peer.acknowledged);
            if (PoolEntry *more = entry()) {
                more->partial_retransmissions += positions_seen < length;
                more->spurious_retransmissions += is_spurious;
            }
        }
        return what;
    }

    WEIR_FUNCTION SegmentClass receive_out_of_window(const Segment &segment, bool reaches_into_stream) const {
        bool agrees = false;
        if (PoolEntry *more = existing_entry()) {
            i32 distance = i32(segment.sequence - more->out_of_window_sequence);
            u32 size = distance < 0 ? 0u - u32(distance) : u32(distance);
            agrees = (hot.flags_and_history_number & LAST_OUT_OF_WINDOW) && size < MAX_WINDOW;
        }
        if (agrees && !reaches_into_stream && segment.payload_bytes < MAX_WINDOW) {
            degrade(DEGRADED_JUMP);
            give_up_positions();
            return start_mid_stream(segment);
        }
        if (PoolEntry *more = entry()) {
            more->out_of_window_sequence = segment.sequence;
            hot.flags_and_history_number |= LAST_OUT_OF_WINDOW;
        }
        return OUT_OF_WINDOW;
    }

    WEIR_FUNCTION SegmentClass start_mid_stream(const Segment &segment) const {
        u64 lowest = initial_position(segment.sequence);
        start(lowest, segment);
        account_positions(lowest, segment, IN_ORDER);
        return IN_ORDER;
    }

    WEIR_FUNCTION bool is_reordered(const Segment &segment, const Overlap &missing) const {
        u64 age_ns = segment.time_ns > missing.missing_since_ns ? segment.time_ns - missing.missing_since_ns : 0;
        u16 filling = segment.identification, opening = missing.identification;
        if (filling != 0 && opening != 0) {
            if (is_ahead(filling, opening, NEWER_IDENTIFICATIONS)) return false;
            if (age_ns <= IDENTIFIED_REORDERING_NS && is_ahead(opening, filling, COUNTED_IDENTIFICATIONS)) return true;
        }
        return age_ns <= reordering_ns();
    }

    WEIR_FUNCTION u64 reordering_ns() const {
        u64 own = cold.handshake_rtt_ns, other = peer_cold.handshake_rtt_ns;
        return own == 0 || other == 0 ? DEFAULT_REORDERING_NS : saturating_sum(own - 1, other - 1);
    }

    WEIR_FUNCTION Overlap compare_with_seen(u64 start, u64 end) const {
        Overlap result{overlap(start, end, cold.lowest_position, hot.next_position), cold.started_ns, 0};
        bool found = false;
        if (PoolEntry *more = existing_entry()) {
            for (u32 at = 0; at < more->holes.count; at++) {
                Hole hole = more->holes.get(at);
                u64 missing = overlap(start, end, hole.start, hole.end());
                result.seen -= missing;
                if (missing > 0 && !found) {
                    result.missing_since_ns = hole.since_ns;
                    result.identification = hole.identification;
                    found = true;
                }
            }
        }
        return result;
    }

    WEIR_APART void account_positions(u64 start, const Segment &segment, SegmentClass what) const {
        u64 payload = segment.payload_bytes;
        u64 payload_end = start + payload;
        u64 repeated = payload == 0 ? 0 : compare_with_seen(start, payload_end).seen;
        hot.unique_bytes += payload - repeated;
        if (what != IN_ORDER && payload > 0) {
            if (PoolEntry *more = entry()) {
                more->unique_bytes += payload - repeated;
                more->retransmitted_bytes += repeated;
            }
        }
        bool fin = segment.has(CONTROL_FIN);
        if (payload > 0 || fin) mark_seen(start, payload_end + fin, segment);
        if (fin) take_fin(payload_end, segment.time_ns);
    }

    WEIR_FUNCTION void take_fin(u64 position, u64 time_ns) const {
        if (!(hot.flags_and_history_number & FIN)) {
            cold.fin_position = position;
            cold.fin_ns = time_ns;
        } else if (cold.fin_position != position) {
            cold.scale_and_flags |= SEVERAL_SYN_OR_FIN;
        }
        hot.flags_and_history_number |= FIN | ENDED;
        if (cold.fins < 255) {
            cold.fins++;
        } else if (PoolEntry *more = entry()) {
            more->fins++;
        }
    }

    WEIR_FUNCTION void mark_seen(u64 start, u64 end, const Segment &segment) const {
        u64 next = hot.next_position;
        hot.next_position = higher(next, end);
        if (start == next) return;
        if (start > next) {
            u16 identification = counted_identification(times.waiting[side].identification, segment.identification);
            Hole hole{next, start - next, segment.time_ns, identification};
            if (PoolEntry *more = entry()) {
                more->largest_hole_bytes = higher(more->largest_hole_bytes, hole.length);
                more->holes.push(hole);
            }
        } else {
            u64 lowest = cold.lowest_position;
            cold.lowest_position = lower(lowest, start);
            if (end < lowest) {
                insert_lowest_hole(end, lowest);
            } else if (PoolEntry *more = existing_entry()) {
                more->holes.fill(start, end);
            }
        }
        limit_holes();
    }

    WEIR_FUNCTION void insert_lowest_hole(u64 start, u64 end) const {
        if (PoolEntry *more = entry()) more->holes.insert(0, Hole{start, end - start, cold.started_ns, 0});
    }

    WEIR_FUNCTION void limit_holes() const {
        PoolEntry *more = existing_entry();
        if (more && more->holes.count > MAX_HOLES) {
            Hole hole = more->holes.remove(0);
            more->missing_bytes += hole.length;
            more->degradation |= DEGRADED_HOLES;
        }
    }

    WEIR_FUNCTION void acknowledge(const Segment &segment) const {
        u32 number = segment.acknowledgment;
        if (!(hot.flags_and_history_number & ACKED)) {
            bool answers = (peer_cold.scale_and_flags & SYN_ACKED) != 0;
            if (!segment.has(CONTROL_SYN) && answers && cold.handshake_rtt_ns == 0) {
                cold.handshake_rtt_ns = time_since_peer_syn(segment);
            }
            hot.flags_and_history_number |= ACKED;
            hot.acknowledged = number;
        } else if (!is_after(hot.acknowledged, number)) {
            if (number - hot.acknowledged >= ACKNOWLEDGMENT_JUMP) clear_history();
            hot.acknowledged = number;
        }
    }

    WEIR_FUNCTION void measure_times(const Segment &segment, SegmentClass what) const {
        bool has_ack = segment.has(CONTROL_ACK);
        if (has_ack) acknowledge_timed(times, side, segment);
        if (what != IN_ORDER && what != ACKNOWLEDGMENT && what != DUPLICATE_ACKNOWLEDGMENT) times.waiting[side].has_timed = 0;
        if (what == IN_ORDER || what == SYNS || what == SYN_RETRANSMISSION) times.waiting[side].identification = segment.identification;
        if (segment.payload_bytes == 0 || what == KEEP_ALIVE || what == ZERO_WINDOW_PROBE) return;
        u32 end = segment.sequence + segment.has(CONTROL_SYN) + segment.payload_bytes;
        if (what == IN_ORDER || what == SYNS) {
            if (has_ack) answer(times, side, segment);
        } else if ((peer.flags_and_history_number & ACKED) && !is_after(end, peer.acknowledged)) {
            return;
        }
        const Waiting &waiting = times.waiting[side];
        if (what == IN_ORDER) {
            time_segment(times, side, end, segment.time_ns);
        } else if (waiting.has_request && is_after(waiting.request_end, end)) {
            end = waiting.request_end;
        }
        request(times, side, end, segment.time_ns);
    }

    WEIR_FUNCTION u64 time_since_peer_syn(const Segment &answer) const {
        u32 number = answer.acknowledgment;
        bool acknowledges = (peer.flags_and_history_number & SYN) && is_after(number, u32(peer_cold.lowest_position) - 1) &&
                            !is_after(number, u32(peer.next_position));
        if (!acknowledges || answer.time_ns < peer_cold.last_syn_ns) return 0;
        return saturating_sum(answer.time_ns - peer_cold.last_syn_ns, 1);
    }

    WEIR_FUNCTION void degrade(u32 bit) const {
        if (PoolEntry *more = entry()) more->degradation |= bit;
    }

    WEIR_APART PoolEntry *entry() const {
        if (hot.entry_number == 0) {
            hot.entry_number = pool.allocate();
            if (hot.entry_number == 0) cold.scale_and_flags |= POOL_FULL;
        }
        return existing_entry();
    }

    WEIR_FUNCTION PoolEntry *existing_entry() const { return hot.entry_number ? pool.entries + (hot.entry_number - 1) : nullptr; }
};

// Connection::classify_segment.
WEIR_APART void classify_segment(Connection &connection, u32 side, const Segment *segment, const AnomalyPool &pool) {
    u32 other = 1 - side;
    Classifier{side, connection.hot[side], connection.cold[side], connection.hot[other], connection.cold[other], connection.times, pool}
        .classify_and_count(segment);
}

// Connection::has_ended.
WEIR_FUNCTION inline bool has_ended(const Connection &connection) {
    bool both = (connection.hot[0].flags_and_history_number & connection.hot[1].flags_and_history_number & FIN) != 0;
    return both || ((connection.cold[0].scale_and_flags | connection.cold[1].scale_and_flags) & RESET);
}
