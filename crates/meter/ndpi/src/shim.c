/*
 * The nDPI calls that Weir needs, in C: nDPI's structures have bit fields and differ between builds, so only a C compiler
 * reads them correctly from its headers. library.rs declares and calls these functions.
 *
 * Threads: one thread at a time opens or closes a module. Each module, with its flows, is used by one thread at a time.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <ndpi/ndpi_api.h>

/* What is known of a flow, as nDPI's numbers. The same as Classification in Rust. */
struct weir_ndpi_result {
	uint64_t risks;
	uint16_t master;
	uint16_t application;
	uint16_t category;
	uint16_t confidence;
};

/* Version of the library that is loaded: 4.2.0-0-... */
const char *weir_ndpi_version(void)
{
	return ndpi_revision();
}

/* Octets of a flow, besides what dissectors allocate. */
uint32_t weir_ndpi_flow_size(void)
{
	return ndpi_detection_get_sizeof_ndpi_flow_struct();
}

/* A module with all protocols; NULL if memory is missing. */
struct ndpi_detection_module_struct *weir_ndpi_open(void)
{
	struct ndpi_detection_module_struct *module = ndpi_init_detection_module(ndpi_no_prefs);
	if (module == NULL)
		return NULL;
	NDPI_PROTOCOL_BITMASK all;
	NDPI_BITMASK_SET_ALL(all);
	ndpi_set_protocol_detection_bitmask2(module, &all);
	ndpi_finalize_initialization(module);
	return module;
}

void weir_ndpi_close(struct ndpi_detection_module_struct *module)
{
	ndpi_exit_detection_module(module);
}

/* A new flow; NULL if memory is missing. */
struct ndpi_flow_struct *weir_ndpi_new_flow(void)
{
	size_t size = ndpi_detection_get_sizeof_ndpi_flow_struct();
	struct ndpi_flow_struct *flow = ndpi_flow_malloc(size);
	if (flow != NULL)
		memset(flow, 0, size);
	return flow;
}

void weir_ndpi_free_flow(struct ndpi_flow_struct *flow)
{
	ndpi_free_flow(flow);
}

/* Shows a packet from its IP header on. Returns 1 if later packets cannot change the result. */
int weir_ndpi_inspect(struct ndpi_detection_module_struct *module, struct ndpi_flow_struct *flow, const uint8_t *packet,
		      uint16_t length, uint64_t time_ms)
{
	ndpi_protocol found = ndpi_detection_process_packet(module, flow, packet, length, time_ms);
	int is_known = found.app_protocol != NDPI_PROTOCOL_UNKNOWN || found.master_protocol != NDPI_PROTOCOL_UNKNOWN;
	return is_known && !ndpi_extra_dissection_possible(module, flow);
}

/* What is known of a flow, which is not shown further packets. No guess from the ports. */
void weir_ndpi_result(struct ndpi_detection_module_struct *module, struct ndpi_flow_struct *flow,
		     struct weir_ndpi_result *result)
{
	uint8_t was_guessed = 0;
	ndpi_protocol found = ndpi_detection_giveup(module, flow, 0, &was_guessed);
	result->risks = flow->risk;
	result->master = found.master_protocol;
	result->application = found.app_protocol;
	result->category = (uint16_t)found.category;
	result->confidence = (uint16_t)flow->confidence;
}

/* The name of a protocol, with the one it is within: "TLS.Google". Writes `size` octets at most, with a zero. */
void weir_ndpi_protocol(struct ndpi_detection_module_struct *module, uint16_t master, uint16_t application, char *into,
			uint32_t size)
{
	ndpi_protocol found = {.master_protocol = master, .app_protocol = application};
	ndpi_protocol2name(module, found, into, size);
}

/* The name of a category. */
void weir_ndpi_category(struct ndpi_detection_module_struct *module, uint16_t category, char *into, uint32_t size)
{
	snprintf(into, size, "%s", ndpi_category_get_name(module, (ndpi_protocol_category_t)category));
}

/* The name of a confidence. */
const char *weir_ndpi_confidence(uint16_t confidence)
{
	return ndpi_confidence_get_name((ndpi_confidence_t)confidence);
}

/* Name of a risk; NULL for a number that is none. */
const char *weir_ndpi_risk(uint32_t number)
{
	return number < NDPI_MAX_RISK ? ndpi_risk2str((ndpi_risk_enum)number) : NULL;
}
