// A stand-in for libcuda.so.1, for the tests: no card, but streams that do everything as late as they may. What one asks
// for is done when somebody waits for it, and reads what is there then; so what is not waited for, or written too soon,
// comes out wrong. Compiled together with the kernels, which it runs as loops.
//
// WEIR_CALLS: after so many calls every one fails, as after an error of the card.
#include "../../kernels/weir.cu"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr int OK = 0, NOT_FOUND = 500, FAILED = 700, NO_CONTEXT = 201, WRONG = 1;

long calls_left = getenv("WEIR_CALLS") ? atol(getenv("WEIR_CALLS")) : -1;
bool has_failed;

struct Stream {
    std::vector<std::function<void()>> asked;
    size_t done = 0;

    // A card that failed does nothing any more.
    void run_to(size_t end) {
        while (done < end && !has_failed) asked[done++]();
    }
};

struct Event {
    Stream *stream = nullptr;
    size_t at = 0;

    void wait() {
        if (stream) stream->run_to(at);
    }
};

std::vector<Stream *> streams;
std::map<std::string, void (*)(const Job *, unsigned int)> kernels = {
    {"weir_hash", weir_hash},       {"weir_count", weir_count}, {"weir_scan", weir_scan},
    {"weir_scatter", weir_scatter}, {"weir_heads", weir_heads}, {"weir_walk", weir_walk},     {"weir_walk_long", weir_walk_long},
    {"weir_entries", weir_entries}, {"weir_rooms", weir_rooms}, {"weir_troubles", weir_troubles},
};
thread_local void *current;
int the_context;

int call() {
    if (!current) return NO_CONTEXT;
    has_failed |= calls_left == 0;
    if (has_failed) return FAILED;
    if (calls_left > 0) calls_left--;
    return OK;
}

void run_all() {
    for (Stream *stream : streams) stream->run_to(stream->asked.size());
}

}  // namespace

#define CALL                                                                                                            \
    if (int error = call()) return error

extern "C" {
int cuInit(unsigned) { return OK; }
int cuDriverGetVersion(int *version) { return *version = 12020, OK; }
int cuDeviceGetCount(int *count) { return *count = 2, OK; }
int cuDeviceGet(int *device, int number) { return *device = number, OK; }
int cuDeviceGetName(char *name, int length, int) { return strncpy(name, "stand-in", size_t(length)), OK; }
int cuDeviceGetAttribute(int *value, int, int) { return *value = 8, OK; }
int cuDevicePrimaryCtxRetain(void **context, int) { return *context = &the_context, OK; }
int cuDevicePrimaryCtxRelease_v2(int) { return OK; }
int cuCtxSetCurrent(void *context) { return current = context, OK; }
int cuGetErrorName(int, const char **name) { return *name = "FAILED", OK; }
int cuGetErrorString(int error, const char **text) {
    return *text = error == FAILED ? "the card fell off" : "used in a wrong way", OK;
}
int cuModuleLoadData(void **module, const void *image) {
    CALL;
    *module = &kernels;
    return strstr(static_cast<const char *>(image), ".target sm_80") ? OK : WRONG;
}
int cuModuleUnload(void *) { return OK; }
int cuModuleGetFunction(void **function, void *, const char *name) {
    CALL;
    // As in the text that a card would have.
    auto found = kernels.find(name);
    if (found == kernels.end()) return NOT_FOUND;
    *function = reinterpret_cast<void *>(found->second);
    return OK;
}
int cuStreamCreate(void **stream, unsigned) {
    CALL;
    streams.push_back(new Stream);
    *stream = streams.back();
    return OK;
}
int cuStreamDestroy_v2(void *) { return OK; }
int cuStreamSynchronize(void *stream) {
    CALL;
    auto *which = static_cast<Stream *>(stream);
    which->run_to(which->asked.size());
    return OK;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned) {
    CALL;
    Event now = *static_cast<Event *>(event);
    static_cast<Stream *>(stream)->asked.push_back([now]() mutable { now.wait(); });
    return OK;
}
int cuEventCreate(void **event, unsigned) {
    CALL;
    *event = new Event;
    return OK;
}
int cuEventDestroy_v2(void *event) { return delete static_cast<Event *>(event), OK; }
int cuEventRecord(void *event, void *stream) {
    CALL;
    auto *which = static_cast<Stream *>(stream);
    *static_cast<Event *>(event) = Event{which, which->asked.size()};
    return OK;
}
int cuEventSynchronize(void *event) {
    CALL;
    static_cast<Event *>(event)->wait();
    return OK;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) { return *free = *total = size_t(1) << 30, OK; }
int cuMemAlloc_v2(u64 *address, size_t octets) {
    CALL;
    void *memory = aligned_alloc(256, (octets + 255) / 256 * 256);
    // What was there before is not known.
    memset(memory, 0xa5, octets);
    *address = reinterpret_cast<u64>(memory);
    return OK;
}
int cuMemFree_v2(u64 address) {
    run_all();
    return free(reinterpret_cast<void *>(address)), OK;
}
int cuMemHostAlloc(void **memory, size_t octets, unsigned) {
    CALL;
    *memory = malloc(octets);
    return OK;
}
int cuMemFreeHost(void *memory) { return free(memory), OK; }
int cuMemsetD8Async(u64 address, unsigned char value, size_t octets, void *stream) {
    CALL;
    static_cast<Stream *>(stream)->asked.push_back([=] { memset(reinterpret_cast<void *>(address), value, octets); });
    return OK;
}
int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t octets, void *stream) {
    CALL;
    static_cast<Stream *>(stream)->asked.push_back([=] { memcpy(reinterpret_cast<void *>(to), from, octets); });
    return OK;
}
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t octets, void *stream) {
    CALL;
    static_cast<Stream *>(stream)->asked.push_back([=] { memcpy(to, reinterpret_cast<const void *>(from), octets); });
    return OK;
}
int cuLaunchKernel(void *function, unsigned x, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *stream,
                   void **arguments, void **) {
    CALL;
    Job job = *static_cast<const Job *>(arguments[0]);
    auto kernel = reinterpret_cast<void (*)(const Job *, unsigned)>(function);
    static_cast<Stream *>(stream)->asked.push_back([=] { kernel(&job, x); });
    return OK;
}
}
