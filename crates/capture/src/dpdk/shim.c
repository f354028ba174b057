/*
 * What Weir asks of DPDK, in one C file: most of DPDK's fast path is inline functions and large structures with
 * bit fields, which only a C compiler reads as DPDK's own headers mean them. Decisions are Rust's (driver.rs declares
 * these functions, port.rs uses them); here is only what needs the headers.
 *
 * Results: 0 or a number when it went well, else a negative errno. What DPDK has to say in words is kept for
 * weir_dpdk_words. Who calls: start, attach, open and detach are called by one thread at a time; counts
 * and read_clock by one thread at a time for each port, receive and release for each queue.
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

/* Packets asked for at a time; weir's BURST. */
#define BURST 64
/* Key octets at most: the length is one octet in DPDK. */
#define KEY 255
/* Octets of a packet in one mbuf: a common frame whole; of a longer one this much. */
#define ROOM 2048

/* ---- words ---------------------------------------------------------------------------------------------------- */

/* The first words since they were asked for last; what comes after them is usually a consequence. */
static char words[4096];
static size_t words_length;
static pthread_mutex_t words_lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t keep_words(void *cookie, const char *text, size_t length)
{
	(void)cookie;
	pthread_mutex_lock(&words_lock);
	size_t room = sizeof(words) - words_length;
	size_t kept = length < room ? length : room;
	memcpy(words + words_length, text, kept);
	words_length += kept;
	pthread_mutex_unlock(&words_lock);
	return (ssize_t)length;
}

/* Takes what DPDK has said since the last call; returns the octets written, at most `room`. */
size_t weir_dpdk_words(char *into, size_t room)
{
	pthread_mutex_lock(&words_lock);
	size_t length = words_length < room ? words_length : room;
	memcpy(into, words, length);
	words_length = 0;
	pthread_mutex_unlock(&words_lock);
	return length;
}

/* ---- the environment -------------------------------------------------------------------------------------------- */

/* Whether this thread may run on processor `core`; then it runs nowhere else from here on. */
int weir_dpdk_run_on(unsigned int core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	if (core >= CPU_SETSIZE)
		return -EINVAL;
	CPU_SET(core, &set);
	return -pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

/* Whether this thread may run on processor `core`. */
int weir_dpdk_may_run_on(unsigned int core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	if (core >= CPU_SETSIZE || pthread_getaffinity_np(pthread_self(), sizeof(set), &set) != 0)
		return 0;
	return CPU_ISSET(core, &set) != 0;
}

/* Starts DPDK's environment, which a process can do once. `arguments` stay alive as long as the process. */
int weir_dpdk_start(int count, char **arguments)
{
	cookie_io_functions_t functions = { .write = keep_words };
	FILE *log = fopencookie(NULL, "w", functions);
	if (log == NULL)
		return -errno;
	/* Before the start, or its words would go to the terminal and to syslog. */
	rte_openlog_stream(log);
	return rte_eal_init(count, arguments) < 0 ? -rte_errno : 0;
}

/* ---- ports ------------------------------------------------------------------------------------------------------ */

/* The first port of a device, RTE_MAX_ETHPORTS if it has none. */
static uint16_t first_port(const char *name)
{
	struct rte_dev_iterator iterator;
	uint16_t port = RTE_MAX_ETHPORTS;

	if (rte_eth_iterator_init(&iterator, name) == 0) {
		port = rte_eth_iterator_next(&iterator);
		/* If it did not come to the end, what it holds is to be given back. */
		if (port != RTE_MAX_ETHPORTS)
			rte_eth_iterator_cleanup(&iterator);
	}
	return port;
}

/* Takes the device with DPDK's arguments (`net_pcap0,rx_pcap=FILE`) and tells its first port; `name` is what stands
 * before the first comma. -EEXIST if this process has it already. */
int weir_dpdk_attach(const char *arguments, const char *name, uint16_t *port)
{
	int error;

	/* DPDK itself would not mind, and hand out the port that another source has. */
	if (first_port(name) != RTE_MAX_ETHPORTS)
		return -EEXIST;
	error = rte_dev_probe(arguments);
	if (error != 0)
		return error;
	*port = first_port(name);
	return *port == RTE_MAX_ETHPORTS ? -ENODEV : 0;
}

struct weir_dpdk_port {
	/* In: queues; symmetric hash or the port's own; mbufs per queue. In and out: descriptors per queue. */
	uint16_t queues;
	uint16_t descriptors;
	uint32_t mbufs;
	uint8_t symmetric;
	/* Out: the name of the call that failed. */
	const char *step;
	/* Out: whether packets carry the time by the port's clock. */
	uint8_t stamped;
	/* In: KEY octets of the symmetric key, of which the port takes as many as it wants. */
	const uint8_t *key;
};

/* Where the time stands in an mbuf, and the flag that says that it does; the same for all ports. */
static int stamp_offset = -1;
static uint64_t stamp_flag;

/* Receive queues that the port has at most. */
int weir_dpdk_most_queues(uint16_t port)
{
	struct rte_eth_dev_info info;
	int error = rte_eth_dev_info_get(port, &info);

	return error != 0 ? error : info.max_rx_queues;
}

/* Spreads the entries of the indirection table evenly over the queues. */
static int spread(uint16_t port, uint16_t entries, uint16_t queues)
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

/* Whether the port hashes with the first `length` octets of this key. A port that cannot be asked is believed. */
static int has_key(uint16_t port, const uint8_t *key, uint8_t length)
{
	uint8_t found[KEY] = { 0 };
	struct rte_eth_rss_conf conf = { .rss_key = found, .rss_key_len = length };

	if (rte_eth_dev_rss_hash_conf_get(port, &conf) != 0)
		return 1;
	return conf.rss_key_len == length && memcmp(found, key, length) == 0;
}

/* Sets the port up and starts it; on failure weir_dpdk_detach cleans up. */
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

	/* Nothing that changes packets is asked for: tags stay in, and nothing is joined (LRO) or cut. */
	memset(&conf, 0, sizeof(conf));
	hashed = about->queues > 1 && info.flow_type_rss_offloads != 0;
	if (hashed) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP) &
						   info.flow_type_rss_offloads;
		if (about->symmetric) {
			/* DPDK reads the key and does not keep it. */
			conf.rx_adv_conf.rss_conf.rss_key = (uint8_t *)(uintptr_t)about->key;
			conf.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size != 0 ? info.hash_key_size : 40;
		}
	}
	/* Frames longer than an mbuf come in several of them, where the port can do that. */
	if (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER) {
		uint32_t longest = info.max_rx_pktlen > RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN + 2 * RTE_VLAN_HLEN ?
			info.max_rx_pktlen - (RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN + 2 * RTE_VLAN_HLEN) : 0;
		uint32_t mtu = RTE_MIN(longest, (uint32_t)info.max_mtu);

		if (mtu > RTE_ETHER_MTU) {
			conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER;
			conf.rxmode.mtu = mtu;
		}
	}
	/* The unit of a port's time is its own: without a clock to compare with it says nothing. */
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

		/* One thread at a time takes from a queue's pool and gives back: no cache per core and no atomic needed. */
		snprintf(name, sizeof(name), "weir_%u_%u", port, queue);
		about->step = "rte_pktmbuf_pool_create_by_ops";
		pool = rte_pktmbuf_pool_create_by_ops(name, about->mbufs, 0, 0, RTE_PKTMBUF_HEADROOM + ROOM, node,
						      "ring_sp_sc");
		if (pool == NULL)
			return -rte_errno;
		about->step = "rte_eth_rx_queue_setup";
		error = rte_eth_rx_queue_setup(port, queue, about->descriptors, node, NULL, pool);
		if (error != 0)
			return error;
	}
	/* A port that has no such mode takes everything: virtual ones. */
	about->step = "rte_eth_promiscuous_enable";
	error = rte_eth_promiscuous_enable(port);
	if (error != 0 && error != -ENOTSUP)
		return error;
	/* A card counts on from those who used it before. */
	(void)rte_eth_stats_reset(port);
	about->step = "rte_eth_dev_start";
	error = rte_eth_dev_start(port);
	if (error != 0)
		return error;
	if (hashed && info.reta_size != 0) {
		about->step = "rte_eth_dev_rss_reta_update";
		error = spread(port, info.reta_size, about->queues);
		if (error != 0 && error != -ENOTSUP)
			return error;
	}
	if (hashed && about->symmetric) {
		struct rte_eth_rss_conf *hash = &conf.rx_adv_conf.rss_conf;

		/* Some ports read the key with the configuration, others only here. */
		about->step = "rte_eth_dev_rss_hash_update";
		if (!has_key(port, hash->rss_key, hash->rss_key_len) &&
		    (rte_eth_dev_rss_hash_update(port, hash) != 0 || !has_key(port, hash->rss_key, hash->rss_key_len)))
			return -EKEYREJECTED;
	}
	return 0;
}

/* Stops the port, gives the device back and frees the pools of so many queues. Nobody holds its packets. */
void weir_dpdk_detach(uint16_t port, uint16_t queues)
{
	struct rte_eth_dev_info info;
	int known = rte_eth_dev_info_get(port, &info) == 0;

	/* What fails here leaves something behind; there is nobody who could do more about it. */
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

/* What the port counted since it was opened. */
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

/* What time it is by the port's clock, in its own unit. */
int weir_dpdk_read_clock(uint16_t port, uint64_t *ticks)
{
	return rte_eth_read_clock(port, ticks);
}

/* ---- packets ---------------------------------------------------------------------------------------------------- */

struct weir_dpdk_packet {
	const void *bytes;
	struct rte_mbuf *mbuf;
	/* Time by the port's clock, 0 if it gave none. */
	uint64_t ticks;
	uint32_t captured;
	uint32_t wire;
};

/* The next packets of a queue, at most BURST; they belong to the caller until weir_dpdk_release. */
unsigned int weir_dpdk_receive(uint16_t port, uint16_t queue, struct weir_dpdk_packet *packets)
{
	struct rte_mbuf *mbufs[BURST];
	uint16_t count = rte_eth_rx_burst(port, queue, mbufs, BURST);

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

/* Gives packets back to their pools. */
void weir_dpdk_release(const struct weir_dpdk_packet *packets, unsigned int count)
{
	struct rte_mbuf *mbufs[BURST];

	for (unsigned int i = 0; i < count; i++)
		mbufs[i] = packets[i].mbuf;
	rte_pktmbuf_free_bulk(mbufs, count);
}
