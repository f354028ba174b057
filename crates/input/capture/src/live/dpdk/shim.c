/*
 * The DPDK calls that Weir needs, in C: most of DPDK's fast path consists of inline functions and structures with bit
 * fields, which only a C compiler reads correctly from DPDK's headers. driver.rs declares and calls these functions and
 * makes all decisions.
 *
 * Results: 0 or a number on success, otherwise a negative errno. DPDK's log messages are kept for weir_dpdk_take_log.
 * Threads: one thread at a time calls start, attach, open, open_output and detach; one thread at a time for each port
 * calls counts and read_clock, and for each queue receive, release and send.
 */
#define _GNU_SOURCE
#define ALLOW_EXPERIMENTAL_API /* rte_eth_read_clock */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_mempool.h>

/* Most packets of a burst; the same as MAX_BURST_FRAMES in Rust. */
#define MAX_BURST_FRAMES 64
/* Length of the longest hash key: DPDK stores the length in one byte. */
#define KEY_BYTES 255
/* Data bytes of an mbuf: holds a frame of the usual MTU; a longer one has several segments. */
#define SEGMENT_BYTES 2048

/* ---- log messages ----------------------------------------------------------------------------------------------- */

/* The first messages since the last call of weir_dpdk_take_log; later ones are usually consequences. */
static char log_text[4096];
static size_t log_length;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t append_log(void *cookie, const char *text, size_t length)
{
	(void)cookie;
	pthread_mutex_lock(&log_lock);
	size_t space = sizeof(log_text) - log_length;
	size_t kept = length < space ? length : space;
	memcpy(log_text + log_length, text, kept);
	log_length += kept;
	pthread_mutex_unlock(&log_lock);
	return (ssize_t)length;
}

/* Takes the messages since the last call; returns the number of bytes written, at most `size`. */
size_t weir_dpdk_take_log(char *into, size_t size)
{
	pthread_mutex_lock(&log_lock);
	size_t length = log_length < size ? log_length : size;
	memcpy(into, log_text, length);
	log_length = 0;
	pthread_mutex_unlock(&log_lock);
	return length;
}

/* ---- the environment -------------------------------------------------------------------------------------------- */

/* Binds this thread to a core. */
int weir_dpdk_run_on(unsigned int core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	if (core >= CPU_SETSIZE)
		return -EINVAL;
	CPU_SET(core, &set);
	return -pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

/* Returns whether this thread may run on a core. */
int weir_dpdk_may_run_on(unsigned int core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	if (core >= CPU_SETSIZE || pthread_getaffinity_np(pthread_self(), sizeof(set), &set) != 0)
		return 0;
	return CPU_ISSET(core, &set) != 0;
}

/* Starts DPDK's environment, once per process. `arguments` must live as long as the process. */
int weir_dpdk_start(int count, char **arguments)
{
	cookie_io_functions_t functions = { .write = append_log };
	FILE *log = fopencookie(NULL, "w", functions);
	if (log == NULL)
		return -errno;
	/* Before the start, otherwise its messages go to the terminal and to syslog. */
	rte_openlog_stream(log);
	return rte_eal_init(count, arguments) < 0 ? -rte_errno : 0;
}

/* ---- ports ------------------------------------------------------------------------------------------------------ */

/* Returns the first port of a device, or RTE_MAX_ETHPORTS if it has none. */
static uint16_t first_port(const char *name)
{
	struct rte_dev_iterator iterator;
	uint16_t port = RTE_MAX_ETHPORTS;

	if (rte_eth_iterator_init(&iterator, name) == 0) {
		port = rte_eth_iterator_next(&iterator);
		/* An iterator that has not reached its end must be cleaned up. */
		if (port != RTE_MAX_ETHPORTS)
			rte_eth_iterator_cleanup(&iterator);
	}
	return port;
}

/* Adds a device with DPDK's arguments (`net_pcap0,rx_pcap=FILE`) and sets `port` to its first port; `name` is the part
 * before the first comma. Returns -EEXIST if this process has added it before. */
int weir_dpdk_attach(const char *arguments, const char *name, uint16_t *port)
{
	int error;

	/* DPDK itself would return the port that another source uses. */
	if (first_port(name) != RTE_MAX_ETHPORTS)
		return -EEXIST;
	error = rte_dev_probe(arguments);
	if (error != 0)
		return error;
	*port = first_port(name);
	return *port == RTE_MAX_ETHPORTS ? -ENODEV : 0;
}

struct weir_dpdk_port {
	/* In: number of queues; mbufs per queue; symmetric hash or the port's own. In and out: descriptors per queue. */
	uint16_t queues;
	uint16_t descriptors;
	uint32_t mbufs;
	uint8_t symmetric;
	/* Out: the name of the call that failed. */
	const char *step;
	/* Out: whether packets are time-stamped by the port's clock. */
	uint8_t stamped;
	/* In: KEY_BYTES bytes of the symmetric key, of which the port uses as many as it needs. */
	const uint8_t *key;
};

/* Offset of the time stamp in an mbuf, and the flag that it is valid; the same for all ports. */
static int stamp_offset = -1;
static uint64_t stamp_flag;

/* Returns the largest number of receive queues of a port. */
int weir_dpdk_max_queues(uint16_t port)
{
	struct rte_eth_dev_info info;
	int error = rte_eth_dev_info_get(port, &info);

	return error != 0 ? error : info.max_rx_queues;
}

/* Distributes the entries of the indirection table evenly over the queues. */
static int fill_indirection_table(uint16_t port, uint16_t entries, uint16_t queues)
{
	struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE];

	if (entries > RTE_ETH_RSS_RETA_SIZE_512)
		return -ENOTSUP;
	memset(table, 0, sizeof(table));
	for (uint16_t entry = 0; entry < entries; entry++) {
		struct rte_eth_rss_reta_entry64 *group = &table[entry / RTE_ETH_RETA_GROUP_SIZE];

		group->mask |= 1ULL << (entry % RTE_ETH_RETA_GROUP_SIZE);
		group->reta[entry % RTE_ETH_RETA_GROUP_SIZE] = entry % queues;
	}
	return rte_eth_dev_rss_reta_update(port, table, entries);
}

/* Returns whether the port hashes with the first `length` bytes of this key; true if the port cannot report its key. */
static int has_key(uint16_t port, const uint8_t *key, uint8_t length)
{
	uint8_t found[KEY_BYTES] = { 0 };
	struct rte_eth_rss_conf conf = { .rss_key = found, .rss_key_len = length };

	if (rte_eth_dev_rss_hash_conf_get(port, &conf) != 0)
		return 1;
	return conf.rss_key_len == length && memcmp(found, key, length) == 0;
}

/* Configures and starts a port; after a failure, weir_dpdk_detach cleans up. */
int weir_dpdk_open(uint16_t port, struct weir_dpdk_port *about)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	uint16_t no_descriptors = 0;
	uint64_t clock;
	int hashed, error;
	int node = rte_eth_dev_socket_id(port);

	about->step = "rte_eth_dev_info_get";
	error = rte_eth_dev_info_get(port, &info);
	if (error != 0)
		return error;

	/* No offload that changes packets: VLAN tags stay, and packets are neither merged (LRO) nor cut. */
	memset(&conf, 0, sizeof(conf));
	hashed = about->queues > 1 && info.flow_type_rss_offloads != 0;
	if (hashed) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP) &
						   info.flow_type_rss_offloads;
		if (about->symmetric) {
			/* DPDK copies the key. */
			conf.rx_adv_conf.rss_conf.rss_key = (uint8_t *)(uintptr_t)about->key;
			conf.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size != 0 ? info.hash_key_size : 40;
		}
	}
	/* Frames longer than an mbuf arrive in several segments, if the port supports that. */
	if (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER) {
		uint32_t longest = info.max_rx_pktlen > RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN + 2 * RTE_VLAN_HLEN ?
			info.max_rx_pktlen - (RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN + 2 * RTE_VLAN_HLEN) : 0;
		uint32_t mtu = RTE_MIN(longest, (uint32_t)info.max_mtu);

		if (mtu > RTE_ETHER_MTU) {
			conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER;
			conf.rxmode.mtu = mtu;
		}
	}
	/* The unit of a port's time stamps is unknown, so they are useless without a readable clock. */
	about->stamped = (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_TIMESTAMP) && rte_eth_read_clock(port, &clock) == 0 &&
			 rte_mbuf_dyn_rx_timestamp_register(&stamp_offset, &stamp_flag) == 0;
	if (about->stamped)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_TIMESTAMP;

	about->step = "rte_eth_dev_configure";
	error = rte_eth_dev_configure(port, about->queues, 0, &conf);
	if (error != 0)
		return error;
	about->step = "rte_eth_dev_adjust_nb_rx_tx_desc";
	error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &about->descriptors, &no_descriptors);
	if (error != 0)
		return error;
	for (uint16_t queue = 0; queue < about->queues; queue++) {
		char name[RTE_MEMPOOL_NAMESIZE];
		struct rte_mempool *pool;

		/* One thread at a time takes from a queue's pool, which needs no per-core cache. Other threads may return
		 * packets that were handed on. */
		snprintf(name, sizeof(name), "weir_%u_%u", port, queue);
		about->step = "rte_pktmbuf_pool_create_by_ops";
		pool = rte_pktmbuf_pool_create_by_ops(name, about->mbufs, 0, 0, RTE_PKTMBUF_HEADROOM + SEGMENT_BYTES, node,
						      "ring_mp_sc");
		if (pool == NULL)
			return -rte_errno;
		about->step = "rte_eth_rx_queue_setup";
		error = rte_eth_rx_queue_setup(port, queue, about->descriptors, node, NULL, pool);
		if (error != 0)
			return error;
	}
	/* Virtual ports have no promiscuous mode and receive everything. */
	about->step = "rte_eth_promiscuous_enable";
	error = rte_eth_promiscuous_enable(port);
	if (error != 0 && error != -ENOTSUP)
		return error;
	/* The counters include packets of earlier users. */
	(void)rte_eth_stats_reset(port);
	about->step = "rte_eth_dev_start";
	error = rte_eth_dev_start(port);
	if (error != 0)
		return error;
	if (hashed && info.reta_size != 0) {
		about->step = "rte_eth_dev_rss_reta_update";
		error = fill_indirection_table(port, info.reta_size, about->queues);
		if (error != 0 && error != -ENOTSUP)
			return error;
	}
	if (hashed && about->symmetric) {
		struct rte_eth_rss_conf *hash = &conf.rx_adv_conf.rss_conf;

		/* Some drivers read the key with the configuration, others only here. */
		about->step = "rte_eth_dev_rss_hash_update";
		if (!has_key(port, hash->rss_key, hash->rss_key_len) &&
		    (rte_eth_dev_rss_hash_update(port, hash) != 0 || !has_key(port, hash->rss_key, hash->rss_key_len)))
			return -EKEYREJECTED;
	}
	return 0;
}

struct weir_dpdk_output {
	/* In: number of transmit queues, each with a pool; mbufs of each pool. In and out: descriptors per queue. */
	uint16_t queues;
	uint16_t descriptors;
	uint32_t mbufs;
	/* Out: length of the longest frame without VLAN tag, bytes. */
	uint32_t longest;
	/* Out: the name of the call that failed. */
	const char *step;
};

/* Returns the largest number of transmit queues of a port. */
int weir_dpdk_max_output_queues(uint16_t port)
{
	struct rte_eth_dev_info info;
	int error = rte_eth_dev_info_get(port, &info);

	return error != 0 ? error : info.max_tx_queues;
}

/* Configures and starts a port for sending; after a failure, weir_dpdk_detach cleans up. */
int weir_dpdk_open_output(uint16_t port, struct weir_dpdk_output *about)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	uint16_t receiving = 0, received_descriptors = 64, mtu;
	int error, node = rte_eth_dev_socket_id(port);

	about->step = "rte_eth_dev_info_get";
	error = rte_eth_dev_info_get(port, &info);
	if (error != 0)
		return error;
	/* No offload: frames leave as they are. In particular no fast free, because packets have several owners. */
	memset(&conf, 0, sizeof(conf));
	/* As long as the frames that an mbuf holds, with two VLAN tags. */
	conf.rxmode.mtu = RTE_MAX(RTE_ETHER_MTU,
				  RTE_MIN(info.max_mtu, SEGMENT_BYTES - RTE_ETHER_HDR_LEN - 2 * RTE_VLAN_HLEN));
	about->step = "rte_eth_dev_configure";
	error = rte_eth_dev_configure(port, 0, about->queues, &conf);
	if (error != 0) {
		/* Some drivers, as net_tap, want a receive queue for each transmit queue. Nothing reads it. */
		receiving = about->queues;
		memset(&conf, 0, sizeof(conf));
		error = rte_eth_dev_configure(port, receiving, about->queues, &conf);
	}
	if (error != 0)
		return error;
	about->step = "rte_eth_dev_adjust_nb_rx_tx_desc";
	error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &received_descriptors, &about->descriptors);
	if (error != 0)
		return error;
	for (uint16_t queue = 0; queue < about->queues; queue++) {
		char name[RTE_MEMPOOL_NAMESIZE];
		struct rte_mempool *pool;
		uint32_t mbufs = about->mbufs + (receiving != 0 ? 2 * received_descriptors : 0);

		/* One thread at a time takes from it; others may return packets, as the reader of a ring does. */
		snprintf(name, sizeof(name), "weir_%u_%u", port, queue);
		about->step = "rte_pktmbuf_pool_create_by_ops";
		pool = rte_pktmbuf_pool_create_by_ops(name, mbufs, 0, 0, RTE_PKTMBUF_HEADROOM + SEGMENT_BYTES, node,
						      "ring_mp_sc");
		if (pool == NULL)
			return -rte_errno;
		about->step = "rte_eth_tx_queue_setup";
		error = rte_eth_tx_queue_setup(port, queue, about->descriptors, node, NULL);
		if (error != 0)
			return error;
		about->step = "rte_eth_rx_queue_setup";
		if (receiving != 0) {
			error = rte_eth_rx_queue_setup(port, queue, received_descriptors, node, NULL, pool);
			if (error != 0)
				return error;
		}
	}
	about->step = "rte_eth_dev_start";
	error = rte_eth_dev_start(port);
	if (error != 0)
		return error;
	about->step = "rte_eth_dev_get_mtu";
	error = rte_eth_dev_get_mtu(port, &mtu);
	about->longest = (uint32_t)mtu + RTE_ETHER_HDR_LEN;
	return error;
}

/* Returns the pool of a queue. */
struct rte_mempool *weir_dpdk_pool(uint16_t port, uint16_t queue)
{
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "weir_%u_%u", port, queue);
	return rte_mempool_lookup(name);
}

/* Stops the port, removes the device and frees the pools of its queues. None of its packets may be in use. */
void weir_dpdk_detach(uint16_t port, uint16_t queues)
{
	struct rte_eth_dev_info info;
	int known = rte_eth_dev_info_get(port, &info) == 0;

	/* Failures cannot be handled here. */
	(void)rte_eth_dev_stop(port);
	(void)rte_eth_dev_close(port);
	if (known)
		(void)rte_dev_remove(info.device);
	for (uint16_t queue = 0; queue < queues; queue++) {
		char name[RTE_MEMPOOL_NAMESIZE];

		snprintf(name, sizeof(name), "weir_%u_%u", port, queue);
		rte_mempool_free(rte_mempool_lookup(name));
	}
}

struct weir_dpdk_counts {
	uint64_t received;
	uint64_t missed;
	uint64_t damaged;
	uint64_t without_memory;
};

/* Reads the counters of a port since it was opened. */
int weir_dpdk_counts(uint16_t port, struct weir_dpdk_counts *counts)
{
	struct rte_eth_stats stats;
	int error = rte_eth_stats_get(port, &stats);

	if (error != 0)
		return error;
	counts->received = stats.ipackets;
	counts->missed = stats.imissed;
	counts->damaged = stats.ierrors;
	counts->without_memory = stats.rx_nombuf;
	return 0;
}

/* Reads the port's clock, in its own unit. */
int weir_dpdk_read_clock(uint16_t port, uint64_t *ticks)
{
	return rte_eth_read_clock(port, ticks);
}

/* ---- packets ---------------------------------------------------------------------------------------------------- */

struct weir_dpdk_packet {
	const void *bytes;
	struct rte_mbuf *mbuf;
	/* Time stamp of the port's clock, 0 if there is none. */
	uint64_t ticks;
	uint32_t captured;
	uint32_t wire;
};

/* Receives up to MAX_BURST_FRAMES packets of a queue; they belong to the caller until weir_dpdk_release. */
unsigned int weir_dpdk_receive(uint16_t port, uint16_t queue, struct weir_dpdk_packet *packets)
{
	struct rte_mbuf *mbufs[MAX_BURST_FRAMES];
	uint16_t count = rte_eth_rx_burst(port, queue, mbufs, MAX_BURST_FRAMES);

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = mbufs[i];

		packets[i].bytes = rte_pktmbuf_mtod(mbuf, const void *);
		packets[i].mbuf = mbuf;
		packets[i].ticks = (mbuf->ol_flags & stamp_flag) != 0 ?
			*RTE_MBUF_DYNFIELD(mbuf, stamp_offset, rte_mbuf_timestamp_t *) : 0;
		packets[i].captured = rte_pktmbuf_data_len(mbuf);
		packets[i].wire = rte_pktmbuf_pkt_len(mbuf);
	}
	return count;
}

/* Returns packets to their pools. */
void weir_dpdk_release(const struct weir_dpdk_packet *packets, unsigned int count)
{
	struct rte_mbuf *mbufs[MAX_BURST_FRAMES];

	for (unsigned int i = 0; i < count; i++)
		mbufs[i] = packets[i].mbuf;
	rte_pktmbuf_free_bulk(mbufs, count);
}

/* A packet to send: the length of its bytes, and the mbuf that has them, or NULL. */
struct weir_dpdk_outgoing {
	const void *bytes;
	struct rte_mbuf *mbuf;
	uint32_t length;
};

/* mbufs that a pool keeps for receiving; below, packets are copied. */
#define SPARE_MBUFS (2 * MAX_BURST_FRAMES)

/* Whether an mbuf can be sent as it is: it has these bytes and no others, and its receiver has enough left. */
static int can_share(const struct weir_dpdk_outgoing *packet)
{
	const struct rte_mbuf *mbuf = packet->mbuf;

	return mbuf != NULL && mbuf->nb_segs == 1 && rte_pktmbuf_pkt_len(mbuf) == packet->length &&
	       rte_mempool_avail_count(mbuf->pool) >= SPARE_MBUFS;
}

/* Sends up to MAX_BURST_FRAMES packets; returns how many of the first ones the port took. The receiver's mbufs have two
 * owners from now on. Other packets are copied into mbufs of `pool`. */
unsigned int weir_dpdk_send(uint16_t port, uint16_t queue, struct rte_mempool *pool,
			    const struct weir_dpdk_outgoing *packets, unsigned int count)
{
	struct rte_mbuf *mbufs[MAX_BURST_FRAMES];
	uint16_t filled = 0, sent;

	for (; filled < count; filled++) {
		const struct weir_dpdk_outgoing *packet = &packets[filled];
		struct rte_mbuf *mbuf = packet->mbuf;

		if (can_share(packet)) {
			rte_mbuf_refcnt_update(mbuf, 1);
		} else {
			char *data;

			mbuf = rte_pktmbuf_alloc(pool);
			if (mbuf == NULL)
				break;
			data = rte_pktmbuf_append(mbuf, (uint16_t)packet->length);
			if (data == NULL) {
				rte_pktmbuf_free(mbuf);
				break;
			}
			memcpy(data, packet->bytes, packet->length);
		}
		mbufs[filled] = mbuf;
	}
	sent = rte_eth_tx_burst(port, queue, mbufs, filled);
	if (sent < filled)
		rte_pktmbuf_free_bulk(mbufs + sent, filled - sent);
	return sent;
}
