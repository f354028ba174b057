/*
 * For tests only: injects packets into the rings of a net_ring device, whose receive queue N reads what its transmit
 * queue N was given; takes packets from them; and reads the configuration of a port.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

/* Puts a packet into queue `queue` of `device`, in segments of `segment` bytes. Returns 0, or -1 if the ring is full. */
int weir_dpdk_inject(const char *device, uint16_t queue, const uint8_t *bytes, uint32_t length, uint16_t segment)
{
	/* Not a pool of the port, because only one thread at a time may use those. */
	struct rte_mempool *pool = rte_mempool_lookup("weir_inject");
	struct rte_mbuf *whole = NULL;
	char name[RTE_RING_NAMESIZE];
	struct rte_ring *ring;

	if (pool == NULL)
		pool = rte_pktmbuf_pool_create("weir_inject", 4095, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	snprintf(name, sizeof(name), "ETH_RXTX%u_%s", queue, device);
	ring = rte_ring_lookup(name);
	if (pool == NULL || ring == NULL)
		return -1;
	while (length > 0) {
		uint16_t part = length < segment ? (uint16_t)length : segment;
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
		char *data = mbuf == NULL ? NULL : rte_pktmbuf_append(mbuf, part);

		if (data == NULL || (whole != NULL && rte_pktmbuf_chain(whole, mbuf) != 0)) {
			rte_pktmbuf_free(mbuf);
			rte_pktmbuf_free(whole);
			return -1;
		}
		memcpy(data, bytes, part);
		whole = whole == NULL ? mbuf : whole;
		bytes += part;
		length -= part;
	}
	if (whole == NULL || rte_ring_enqueue(ring, whole) != 0) {
		rte_pktmbuf_free(whole);
		return -1;
	}
	return 0;
}

/* Takes a packet that was sent into queue `queue` of `device`: its first `size` bytes, and where they were. Returns its
 * length, or -1 if there is none. */
int weir_dpdk_take(const char *device, uint16_t queue, uint8_t *bytes, uint32_t size, const void **address)
{
	char name[RTE_RING_NAMESIZE];
	struct rte_ring *ring;
	struct rte_mbuf *mbuf;
	int length;

	snprintf(name, sizeof(name), "ETH_RXTX%u_%s", queue, device);
	ring = rte_ring_lookup(name);
	if (ring == NULL || rte_ring_dequeue(ring, (void **)&mbuf) != 0)
		return -1;
	length = (int)rte_pktmbuf_pkt_len(mbuf);
	*address = rte_pktmbuf_mtod(mbuf, const void *);
	memcpy(bytes, *address, RTE_MIN(size, (uint32_t)rte_pktmbuf_data_len(mbuf)));
	rte_pktmbuf_free(mbuf);
	return length;
}

/* Returns the number of mbufs of the test pool that are in use. */
unsigned int weir_dpdk_injected(void)
{
	struct rte_mempool *pool = rte_mempool_lookup("weir_inject");

	return pool == NULL ? 0 : rte_mempool_in_use_count(pool);
}

/* Reads the queue of each entry of a port's indirection table, at most `size`; returns the number of entries, or a
 * negative errno. */
int weir_dpdk_table(const char *device, uint16_t *queues, uint16_t size)
{
	struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE];
	struct rte_eth_dev_info info;
	uint16_t port;
	int error = rte_eth_dev_get_port_by_name(device, &port);

	if (error != 0 || (error = rte_eth_dev_info_get(port, &info)) != 0)
		return error;
	if (info.reta_size > size || info.reta_size > RTE_ETH_RSS_RETA_SIZE_512)
		return -E2BIG;
	memset(table, 0xff, sizeof(table));
	error = rte_eth_dev_rss_reta_query(port, table, info.reta_size);
	if (error != 0)
		return error;
	for (uint16_t entry = 0; entry < info.reta_size; entry++)
		queues[entry] = table[entry / RTE_ETH_RETA_GROUP_SIZE].reta[entry % RTE_ETH_RETA_GROUP_SIZE];
	return info.reta_size;
}

/* Reads the hash key of a port, at most `size` bytes; returns its length, or a negative errno. */
int weir_dpdk_key(const char *device, uint8_t *key, uint8_t size)
{
	struct rte_eth_rss_conf conf = { .rss_key = key, .rss_key_len = size };
	struct rte_eth_dev_info info;
	uint16_t port;
	int error = rte_eth_dev_get_port_by_name(device, &port);

	if (error != 0 || (error = rte_eth_dev_info_get(port, &info)) != 0 ||
	    (error = rte_eth_dev_rss_hash_conf_get(port, &conf)) != 0)
		return error;
	return info.hash_key_size;
}
