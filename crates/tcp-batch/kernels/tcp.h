// What became of a segment: crates/tcp/src/connection.rs and room.rs over again, for a card.
//
// The structures have the layout of those there, so that memory is copied as it is. Every function here has the name and
// the order of the one it repeats; read that one for the why. Tests hold both against each other, octet by octet.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// rules.rs
constexpr u32 REMEMBERED = 4;
constexpr u32 REMEMBERED_DEEP = 64;
constexpr u32 SUSPICIOUS = REMEMBERED - 1, SUSPICIOUS_DEEP = REMEMBERED_DEEP / 2;
constexpr u32 HOLES = 32;
constexpr u64 FAR_AWAY = 1ull << 30;
constexpr u32 LEAP = 1u << 28;
constexpr u64 REORDERING_NS = 3000000;
constexpr u32 IDENTIFIED_COPY_TICKS = 48;
constexpr u32 COPY_TICKS = 1;
constexpr u32 TICK_BITS = 24;

// Control bits as on the wire.
constexpr u32 CONTROL_FIN = 1, CONTROL_SYN = 2, CONTROL_RST = 4, CONTROL_ACK = 16;
// Segment::FRAGMENT, among them.
constexpr u32 CONTROL_FRAGMENT = 32;

// Hot.state
constexpr u32 FULL = 1u << 31;
constexpr u32 BEGAN = 1, ACKED = 2, ZERO = 4, SYN = 8, FIN = 16, STRANGE = 32, TOLD = 64, ENDED = 128, DEEP = 256;
constexpr u32 TURN_SHIFT = 10;
// Cold.scale_and_more
constexpr u32 ANSWERS = 16, SEVERAL = 32, NO_ROOM = 64, RESET = 128;
// Trouble.degraded
constexpr u32 DEGRADED_HOLES = 1, DEGRADED_DUPLICATES = 2, DEGRADED_JUMP = 4, DEGRADED_REUSED = 8, DEGRADED_UNREAD = 16;

enum Class : u32 {
    UNREAD, DUPLICATE, ROUTED_DUPLICATE, RESETS, SYNS, SYN_REPEATED, OUT_OF_WINDOW, KEEP_ALIVE, ZERO_WINDOW_PROBE,
    ACKNOWLEDGMENT, DUPLICATE_ACKNOWLEDGMENT, IN_ORDER, RETRANSMISSION, OUT_OF_ORDER, UNSEEN_RETRANSMISSION, CLASSES
};

struct Hot {
    u64 highest, unique_bytes;
    u32 in_order, acknowledged;
    u16 window, state;
    u32 trouble;
    u64 recent[REMEMBERED];

    WEIR_FUNCTION u32 turn() const { return state >> TURN_SHIFT; }
};

struct Cold {
    u64 lowest, since_ns, syn_ns, last_syn_ns, fin, fin_ns, handshake_ns;
    u16 maximum_segment, syn_window;
    u8 scale_and_more, syns, fins, resets;
};

struct Connection {
    Hot hot[2];
    Cold cold[2];
};

struct Count {
    u64 segments, bytes;
};

struct Hole {
    u64 start, length, since_ns;
    WEIR_FUNCTION u64 end() const { return start + length; }
};

struct Holes {
    u32 count;
    u32 lengths[HOLES + 1];
    u64 starts[HOLES + 1], since_ns[HOLES + 1];

    WEIR_FUNCTION Hole get(u32 at) const { return Hole{starts[at], lengths[at], since_ns[at]}; }

    WEIR_FUNCTION void set(u32 at, const Hole &hole) {
        starts[at] = hole.start;
        lengths[at] = u32(hole.length);
        since_ns[at] = hole.since_ns;
    }

    WEIR_FUNCTION u64 missing() const {
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

    WEIR_FUNCTION void cut(u64 start, u64 end) {
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
                set(at, Hole{hole.start, below, hole.since_ns});
                at++;
            } else if (below == 0) {
                set(at, Hole{end, above, hole.since_ns});
                break;
            } else {
                set(at, Hole{hole.start, below, hole.since_ns});
                insert(at + 1, Hole{end, above, hole.since_ns});
                break;
            }
        }
    }
};

struct Originals {
    u32 marks[REMEMBERED_DEEP], rest[REMEMBERED_DEEP];

    WEIR_FUNCTION void begin(const u64 *recent, u32 turn) {
        clear();
        for (u32 before = turn + REMEMBERED_DEEP - REMEMBERED; before < turn + REMEMBERED_DEEP; before++) {
            set(before, recent[before % REMEMBERED]);
        }
    }

    WEIR_FUNCTION void clear() {
        for (u32 at = 0; at < REMEMBERED_DEEP; at++) marks[at] = rest[at] = 0;
    }

    WEIR_FUNCTION void set(u32 turn, u64 entry) {
        marks[turn % REMEMBERED_DEEP] = u32(entry >> 32);
        rest[turn % REMEMBERED_DEEP] = u32(entry);
    }

    WEIR_FUNCTION u64 get(u32 turn) const { return u64(marks[turn % REMEMBERED_DEEP]) << 32 | rest[turn % REMEMBERED_DEEP]; }

    WEIR_FUNCTION bool have(u32 mark) const {
        bool any = false;
        for (u32 at = 0; at < REMEMBERED_DEEP; at++) any |= marks[at] == mark;
        return any;
    }
};

struct Trouble {
    Count classes[CLASSES];
    u64 retransmitted_bytes, unique_bytes, partial, spurious, fins, zero_windows, largest_hole, missing_bytes;
    u32 strange;
    u8 degraded, unused[3];
    Holes holes;
    Originals originals;

    // As if new; holes and originals that were there are not overwritten.
    WEIR_FUNCTION void clear() {
        for (u32 number = 0; number < CLASSES; number++) classes[number] = Count{0, 0};
        retransmitted_bytes = unique_bytes = partial = spurious = fins = zero_windows = largest_hole = missing_bytes = 0;
        strange = 0;
        degraded = 0;
        holes.count = 0;
    }
};

static_assert(sizeof(Hot) == 64 && sizeof(Cold) == 64 && sizeof(Connection) == 256, "as in connection.rs");
static_assert(sizeof(Holes) == 664 && sizeof(Trouble) == 1488, "as in room.rs");

// Room for directions in trouble. Numbers are taken by many threads at once, so which one a direction has is chance.
struct Room {
    Trouble *entries;
    // Numbers to take first, the last one first; then those from `known` on, below `capacity`.
    const u32 *free;
    u32 free_count, known, capacity;
    u32 *taken;

    // A number plus 1, or 0.
    WEIR_FUNCTION u32 take() const {
        u32 before = WEIR_ADD(taken, 1u);
        u32 at = before < free_count ? free[free_count - 1 - before] : known + (before - free_count);
        if (at >= capacity) return 0;
        entries[at].clear();
        return at + 1;
    }
};

struct Segment {
    u64 time_ns;
    u32 sequence, acknowledgment, payload_bytes, mark;
    u32 window, maximum_segment, window_scale, control, ttl;
    bool identified;

    WEIR_FUNCTION bool has(u32 bit) const { return (control & bit) != 0; }
};

WEIR_FUNCTION inline u32 tick(u64 time_ns) { return u32(time_ns >> 20) & ((1u << TICK_BITS) - 1); }

WEIR_FUNCTION inline u32 ticks_between(u32 one, u32 other) {
    u32 ahead = (one - other) << (32 - TICK_BITS) >> (32 - TICK_BITS);
    u32 behind = (1u << TICK_BITS) - ahead;
    return ahead < behind ? ahead : behind;
}

WEIR_FUNCTION inline bool is_after(u32 one, u32 other) { return i32(one - other) > 0; }

WEIR_FUNCTION inline u64 position_near(u64 known, u32 sequence) { return known + u64(i64(i32(sequence - u32(known)))); }

WEIR_FUNCTION inline u64 first_position(u32 sequence) { return 1ull << 32 | sequence; }

WEIR_FUNCTION inline u64 lower(u64 one, u64 other) { return one < other ? one : other; }

WEIR_FUNCTION inline u64 higher(u64 one, u64 other) { return one > other ? one : other; }

WEIR_FUNCTION inline u64 overlap(u64 start, u64 end, u64 other_start, u64 other_end) {
    u64 from = higher(start, other_start), to = lower(end, other_end);
    return to > from ? to - from : 0;
}

WEIR_FUNCTION inline u64 sum_at_most(u64 one, u64 other) { return one + other < one ? ~0ull : one + other; }

WEIR_FUNCTION inline u64 entry_of(const Segment &segment) {
    return u64(segment.mark) << 32 | u64(segment.ttl) << 24 | tick(segment.time_ns);
}

WEIR_FUNCTION inline void remember(Hot &hot, const Segment &segment) {
    hot.recent[hot.turn() % REMEMBERED] = entry_of(segment);
    hot.state = u16(hot.state + (1u << TURN_SHIFT));
}

// Connection::advance.
WEIR_FUNCTION inline bool usual(Hot &hot, const Segment &segment) {
    u32 step = segment.acknowledgment - hot.acknowledged;
    if (segment.control != CONTROL_ACK || segment.window == 0 || step >= LEAP) return false;
    u32 next = u32(hot.highest);
    if (segment.payload_bytes == 0) {
        if ((hot.state & (ACKED | ZERO | DEEP)) != ACKED || step == 0 || segment.sequence == next - 1) return false;
        hot.window = u16(segment.window);
    } else {
        bool known = (hot.state & (BEGAN | ACKED | ZERO | STRANGE | DEEP)) == (BEGAN | ACKED) && hot.in_order < FULL;
        if (!known || segment.sequence != next || segment.payload_bytes - 2 >= 1u << 16) return false;
        hot.highest += segment.payload_bytes;
        hot.unique_bytes += segment.payload_bytes;
        hot.in_order++;
    }
    hot.acknowledged = segment.acknowledgment;
    remember(hot, segment);
    return true;
}

// One side, on its way through a segment.
struct Half {
    Hot &hot;
    Cold &cold;
    const Hot &peer;
    const Cold &peer_cold;
    const Room &room;

    WEIR_FUNCTION Trouble *known_trouble() const { return hot.trouble ? room.entries + (hot.trouble - 1) : nullptr; }

    WEIR_APART Trouble *trouble() const {
        if (hot.trouble == 0) {
            hot.trouble = room.take();
            if (hot.trouble == 0) cold.scale_and_more |= NO_ROOM;
        }
        return known_trouble();
    }

    WEIR_FUNCTION void degrade(u32 bit) const {
        if (Trouble *more = trouble()) more->degraded |= bit;
    }

    WEIR_FUNCTION void spill() const {
        if (hot.in_order >= FULL) {
            if (Trouble *more = trouble()) {
                more->classes[IN_ORDER].segments += hot.in_order;
                hot.in_order = 0;
            }
        }
    }

    WEIR_FUNCTION void count(Class what, u32 bytes) const {
        u8 *small = nullptr;
        if (what == ACKNOWLEDGMENT) return;
        if (what == IN_ORDER) {
            hot.in_order += hot.in_order < ~0u;
            return;
        }
        if (what == SYNS) small = &cold.syns;
        if (what == RESETS) small = &cold.resets;
        if (small && bytes == 0 && *small < 255) {
            ++*small;
        } else if (Trouble *more = trouble()) {
            more->classes[what].segments++;
            more->classes[what].bytes += bytes;
        }
    }

    WEIR_FUNCTION Class classify(const Segment &segment) const {
        if (segment.has(CONTROL_FRAGMENT)) degrade(DEGRADED_UNREAD);
        Class copied;
        if (copy(segment, copied)) return copied;
        Class what;
        if (segment.has(CONTROL_RST)) {
            hot.state |= ENDED;
            cold.scale_and_more |= RESET;
            what = RESETS;
        } else if (segment.has(CONTROL_SYN)) {
            what = synchronize(segment);
        } else {
            what = receive(segment);
        }
        if (what == OUT_OF_WINDOW) return what;
        if (what != RESETS) {
            hot.state = u16(segment.window == 0 ? hot.state | ZERO : hot.state & ~ZERO);
            if (segment.window == 0) {
                if (Trouble *more = trouble()) more->zero_windows++;
            }
            if (segment.has(CONTROL_ACK)) acknowledge(segment);
        }
        remember_here(segment);
        return what;
    }

    WEIR_FUNCTION bool copy(const Segment &segment, Class &what) const {
        bool told = !segment.has(CONTROL_RST) && (segment.payload_bytes > 0 || segment.has(CONTROL_SYN | CONTROL_FIN));
        if (!segment.identified && !told) return false;
        u32 limit = segment.identified ? IDENTIFIED_COPY_TICKS : COPY_TICKS;
        u32 turn = hot.turn();
        const Originals *originals = hot.state & DEEP ? &known_trouble()->originals : nullptr;
        if (originals && !originals->have(segment.mark)) return false;
        u32 remembered = originals ? REMEMBERED_DEEP : REMEMBERED;
        for (u32 age = 0; age < remembered; age++) {
            u32 before = turn - age - 1;
            u64 entry = originals ? originals->get(before) : hot.recent[before % REMEMBERED];
            bool close = ticks_between(u32(entry) & 0x00ffffff, tick(segment.time_ns)) <= limit;
            if (u32(entry >> 32) != segment.mark || !close) continue;
            if (age >= (originals ? SUSPICIOUS_DEEP : SUSPICIOUS)) degrade(DEGRADED_DUPLICATES);
            if (!originals) remember_more();
            what = u8(entry >> 24) == segment.ttl ? DUPLICATE : ROUTED_DUPLICATE;
            return true;
        }
        return false;
    }

    WEIR_FUNCTION void remember_more() const {
        u32 turn = hot.turn();
        if (Trouble *more = trouble()) {
            more->originals.begin(hot.recent, turn);
            hot.state |= DEEP;
        }
    }

    // Half::remember.
    WEIR_FUNCTION void remember_here(const Segment &segment) const {
        u32 turn = hot.turn();
        remember(hot, segment);
        if (hot.state & DEEP) known_trouble()->originals.set(turn, entry_of(segment));
    }

    WEIR_FUNCTION void forget() const {
        for (u32 at = 0; at < REMEMBERED; at++) hot.recent[at] = 0;
        if (hot.state & DEEP) known_trouble()->originals.clear();
    }

    WEIR_FUNCTION Class synchronize(const Segment &segment) const {
        if (segment.payload_bytes >= FAR_AWAY) return OUT_OF_WINDOW;
        u32 first = segment.sequence + 1;
        bool again = (hot.state & SYN) && u32(cold.lowest) == first;
        if (!again) {
            u32 behind = u32(cold.lowest) - first;
            if (!(hot.state & BEGAN) || (hot.state & SYN) || behind >= FAR_AWAY) begin_anew(segment, first_position(first));
            u64 position = position_near(cold.lowest, first);
            if (position < cold.lowest) {
                Hole hole{position, cold.lowest - position, cold.since_ns};
                cold.lowest = position;
                if (Trouble *more = trouble()) more->holes.insert(0, hole);
                settle();
            }
            bool answers = segment.has(CONTROL_ACK);
            u64 handshake_ns = answers ? time_since_peers_syn(segment) : 0;
            hot.state |= SYN | TOLD;
            cold.syn_ns = segment.time_ns;
            cold.syn_window = u16(segment.window);
            cold.maximum_segment = u16(segment.maximum_segment);
            cold.scale_and_more = u8((cold.scale_and_more & ~(ANSWERS | 0xfu)) | segment.window_scale | (answers ? ANSWERS : 0));
            cold.handshake_ns = handshake_ns;
        }
        cold.last_syn_ns = segment.time_ns;
        Class what = again ? SYN_REPEATED : SYNS;
        take(cold.lowest, segment, what);
        return what;
    }

    WEIR_FUNCTION void begin_anew(const Segment &segment, u64 first) const {
        if (hot.state & BEGAN) {
            if (!(hot.state & ENDED) && !(peer.state & ENDED)) degrade(DEGRADED_REUSED);
            give_up();
        }
        begin(first, segment);
        hot.state &= u16(~(ENDED | ACKED));
        forget();
        hot.acknowledged = 0;
        hot.window = 0;
    }

    WEIR_FUNCTION void begin(u64 first, const Segment &segment) const {
        cold.lowest = hot.highest = first;
        cold.since_ns = segment.time_ns;
        hot.state |= BEGAN;
    }

    WEIR_FUNCTION void give_up() const {
        if (Trouble *more = known_trouble()) {
            more->missing_bytes += more->holes.missing();
            more->holes.count = 0;
        }
        hot.state &= u16(~(SYN | STRANGE));
        cold.scale_and_more |= SEVERAL;
        forget();
    }

    WEIR_FUNCTION Class receive(const Segment &segment) const {
        u32 sequence = segment.sequence, payload = segment.payload_bytes;
        bool fin = segment.has(CONTROL_FIN);
        u32 next = u32(hot.highest);
        if ((hot.state & BEGAN) && !fin) {
            bool again = payload <= 1 && sequence == next - 1;
            bool probes = sequence == next || (again && cold.lowest < hot.highest);
            if (payload == 1 && probes && (peer.state & ZERO)) {
                hot.state &= u16(~STRANGE);
                take(hot.highest - again, segment, ZERO_WINDOW_PROBE);
                return ZERO_WINDOW_PROBE;
            }
            if (again) return KEEP_ALIVE;
        }
        if (payload == 0 && !fin) {
            bool repeats = segment.has(CONTROL_ACK) && (hot.state & ACKED) && hot.acknowledged == segment.acknowledgment &&
                           hot.window == segment.window && segment.window != 0;
            bool outstanding = (peer.state & BEGAN) && is_after(u32(peer.highest), segment.acknowledgment);
            hot.window = u16(segment.window);
            return repeats && outstanding ? DUPLICATE_ACKNOWLEDGMENT : ACKNOWLEDGMENT;
        }
        if (!(hot.state & BEGAN)) {
            if (payload >= FAR_AWAY) return OUT_OF_WINDOW;
            return begin_amid(segment);
        }
        u64 highest = hot.highest;
        u64 start = position_near(highest, sequence);
        u64 end = start + payload + fin;
        bool before_syn = (hot.state & SYN) && start < cold.lowest;
        if (before_syn || start + FAR_AWAY <= highest || highest + FAR_AWAY <= end) {
            return out_of_window(segment, before_syn && end > cold.lowest);
        }
        hot.state &= u16(~STRANGE);
        if (start >= highest) {
            take(start, segment, IN_ORDER);
            return IN_ORDER;
        }
        u64 since_ns;
        u64 seen = known(start, end, since_ns);
        u64 age_ns = segment.time_ns > since_ns ? segment.time_ns - since_ns : 0;
        Class what = seen > 0 ? RETRANSMISSION : age_ns <= reordering_ns() ? OUT_OF_ORDER : UNSEEN_RETRANSMISSION;
        take(start, segment, what);
        if (what == RETRANSMISSION) {
            bool spurious = (peer.state & ACKED) && !is_after(u32(end), peer.acknowledged);
            if (Trouble *more = trouble()) {
                more->partial += seen < end - start;
                more->spurious += spurious;
            }
        }
        return what;
    }

    WEIR_FUNCTION Class out_of_window(const Segment &segment, bool is_of_it) const {
        bool agrees = false;
        if (Trouble *more = known_trouble()) {
            i32 distance = i32(segment.sequence - more->strange);
            u32 size = distance < 0 ? 0u - u32(distance) : u32(distance);
            agrees = (hot.state & STRANGE) && size < FAR_AWAY;
        }
        if (agrees && !is_of_it && segment.payload_bytes < FAR_AWAY) {
            degrade(DEGRADED_JUMP);
            give_up();
            return begin_amid(segment);
        }
        if (Trouble *more = trouble()) {
            more->strange = segment.sequence;
            hot.state |= STRANGE;
        }
        return OUT_OF_WINDOW;
    }

    WEIR_FUNCTION Class begin_amid(const Segment &segment) const {
        u64 first = first_position(segment.sequence);
        begin(first, segment);
        take(first, segment, IN_ORDER);
        return IN_ORDER;
    }

    WEIR_FUNCTION u64 reordering_ns() const {
        u64 own = cold.handshake_ns, other = peer_cold.handshake_ns;
        return own == 0 || other == 0 ? REORDERING_NS : sum_at_most(own - 1, other - 1);
    }

    WEIR_FUNCTION u64 known(u64 start, u64 end, u64 &since_ns) const {
        u64 seen = overlap(start, end, cold.lowest, hot.highest);
        bool found = false;
        since_ns = cold.since_ns;
        if (Trouble *more = known_trouble()) {
            for (u32 at = 0; at < more->holes.count; at++) {
                Hole hole = more->holes.get(at);
                u64 missing = overlap(start, end, hole.start, hole.end());
                seen -= missing;
                if (missing > 0 && !found) {
                    since_ns = hole.since_ns;
                    found = true;
                }
            }
        }
        return seen;
    }

    WEIR_APART void take(u64 start, const Segment &segment, Class what) const {
        u64 payload = segment.payload_bytes;
        u64 payload_end = start + payload;
        u64 since_ns;
        u64 seen = payload == 0 ? 0 : known(start, payload_end, since_ns);
        hot.unique_bytes += payload - seen;
        if (what != IN_ORDER && payload > 0) {
            if (Trouble *more = trouble()) {
                more->unique_bytes += payload - seen;
                more->retransmitted_bytes += seen;
            }
        }
        bool fin = segment.has(CONTROL_FIN);
        if (payload > 0 || fin) add(start, payload_end + fin, segment.time_ns);
        if (fin) note_fin(payload_end, segment.time_ns);
    }

    WEIR_FUNCTION void note_fin(u64 position, u64 time_ns) const {
        if (!(hot.state & FIN)) {
            cold.fin = position;
            cold.fin_ns = time_ns;
        } else if (cold.fin != position) {
            cold.scale_and_more |= SEVERAL;
        }
        hot.state |= FIN | ENDED;
        if (cold.fins < 255) {
            cold.fins++;
        } else if (Trouble *more = trouble()) {
            more->fins++;
        }
    }

    WEIR_FUNCTION void add(u64 start, u64 end, u64 now_ns) const {
        u64 lowest = cold.lowest, highest = hot.highest;
        cold.lowest = lower(lowest, start);
        hot.highest = higher(highest, end);
        if (start >= highest || end <= lowest) {
            Hole hole = start >= highest ? Hole{highest, start - highest, now_ns} : Hole{end, lowest - end, cold.since_ns};
            if (u32(hole.length) == 0) return;
            if (Trouble *more = trouble()) {
                if (start >= highest) {
                    more->largest_hole = higher(more->largest_hole, hole.length);
                    more->holes.push(hole);
                } else {
                    more->holes.insert(0, hole);
                }
            }
        } else if (Trouble *more = known_trouble()) {
            more->holes.cut(start, end);
        }
        settle();
    }

    WEIR_FUNCTION void settle() const {
        Trouble *more = known_trouble();
        if (more && more->holes.count > HOLES) {
            Hole hole = more->holes.remove(0);
            more->missing_bytes += hole.length;
            more->degraded |= DEGRADED_HOLES;
        }
    }

    WEIR_FUNCTION void acknowledge(const Segment &segment) const {
        u32 number = segment.acknowledgment;
        if (!(hot.state & ACKED)) {
            bool answers = (peer_cold.scale_and_more & ANSWERS) != 0;
            if (!segment.has(CONTROL_SYN) && answers && cold.handshake_ns == 0) cold.handshake_ns = time_since_peers_syn(segment);
            hot.state |= ACKED;
            hot.acknowledged = number;
        } else if (!is_after(hot.acknowledged, number)) {
            if (number - hot.acknowledged >= LEAP) forget();
            hot.acknowledged = number;
        }
    }

    WEIR_FUNCTION u64 time_since_peers_syn(const Segment &answer) const {
        u32 number = answer.acknowledgment;
        bool acknowledges = (peer.state & SYN) && is_after(number, u32(peer_cold.lowest) - 1) && !is_after(number, u32(peer.highest));
        if (!acknowledges || answer.time_ns < peer_cold.last_syn_ns) return 0;
        return sum_at_most(answer.time_ns - peer_cold.last_syn_ns, 1);
    }
};

// Connection::step. Without a segment: a packet without a whole TCP header.
WEIR_APART void step(Connection &connection, u32 side, const Segment *segment, const Room &room) {
    u32 other = 1 - side;
    Half half{connection.hot[side], connection.cold[side], connection.hot[other], connection.cold[other], room};
    half.spill();
    if (segment) {
        half.count(half.classify(*segment), segment->payload_bytes);
    } else {
        half.degrade(DEGRADED_UNREAD);
        half.count(UNREAD, 0);
    }
}

// Connection::has_ended.
WEIR_FUNCTION inline bool has_ended(const Connection &connection) {
    bool both = (connection.hot[0].state & connection.hot[1].state & FIN) != 0;
    return both || ((connection.cold[0].scale_and_more | connection.cold[1].scale_and_more) & RESET);
}
