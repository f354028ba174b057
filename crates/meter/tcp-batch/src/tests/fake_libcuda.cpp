// A fake libcuda.so.1 for tests. Its streams run every operation as late as CUDA permits: when the
// program waits for it. A missing wait, or memory written too early, therefore gives wrong results.
// The kernels are compiled in, as C++.
//
// WEIR_CALLS: number of calls after which all calls fail, as after an error of the GPU.
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
    std::vector<std::function<void()>> operations;
    size_t done = 0;

    // A GPU that failed does nothing.
    void run_to(size_t end) {
        while (done < end && !has_failed) operations[done++]();
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
std::map<std::string, void (*)(const KernelArguments *, unsigned int)> kernels = {
    {"weir_hash", weir_hash},
    {"weir_count_digits", weir_count_digits},
    {"weir_prefix_sums", weir_prefix_sums},
    {"weir_scatter", weir_scatter},
    {"weir_find_runs", weir_find_runs},
    {"weir_process_runs", weir_process_runs},
    {"weir_process_long_runs", weir_process_long_runs},
    {"weir_gather_entries", weir_gather_entries},
    {"weir_list_anomalies", weir_list_anomalies},
    {"weir_gather_anomalies", weir_gather_anomalies},
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
    for (Stream *stream : streams) stream->run_to(stream->operations.size());
}

}  // namespace

#define CALL                                                                                                            \
    if (int error = call()) return error

extern "C" {
int cuInit(unsigned) { return OK; }
int cuDriverGetVersion(int *version) { return *version = 12020, OK; }
int cuDeviceGetCount(int *count) { return *count = 2, OK; }
int cuDeviceGet(int *device, int number) { return *device = number, OK; }
int cuDeviceGetName(char *name, int length, int) { return strncpy(name, "fake GPU", size_t(length)), OK; }
int cuDeviceGetAttribute(int *value, int, int) { return *value = 8, OK; }
int cuDevicePrimaryCtxRetain(void **context, int) { return *context = &the_context, OK; }
int cuDevicePrimaryCtxRelease_v2(int) { return OK; }
int cuCtxSetCurrent(void *context) { return current = context, OK; }
int cuGetErrorName(int, const char **name) { return *name = "FAILED", OK; }
int cuGetErrorString(int error, const char **text) {
    return *text = error == FAILED ? "the GPU fell off the bus" : "invalid use", OK;
}
int cuModuleLoadData(void **module, const void *image) {
    CALL;
    *module = &kernels;
    return strstr(static_cast<const char *>(image), ".target sm_80") ? OK : WRONG;
}
int cuModuleUnload(void *) { return OK; }
int cuModuleGetFunction(void **function, void *, const char *name) {
    CALL;
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
    which->run_to(which->operations.size());
    return OK;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned) {
    CALL;
    Event now = *static_cast<Event *>(event);
    static_cast<Stream *>(stream)->operations.push_back([now]() mutable { now.wait(); });
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
    *static_cast<Event *>(event) = Event{which, which->operations.size()};
    return OK;
}
int cuEventSynchronize(void *event) {
    CALL;
    static_cast<Event *>(event)->wait();
    return OK;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) { return *free = *total = size_t(1) << 30, OK; }
int cuMemAlloc_v2(u64 *address, size_t length) {
    CALL;
    void *memory = aligned_alloc(256, (length + 255) / 256 * 256);
    // Uninitialised memory.
    memset(memory, 0xa5, length);
    *address = reinterpret_cast<u64>(memory);
    return OK;
}
int cuMemFree_v2(u64 address) {
    run_all();
    return free(reinterpret_cast<void *>(address)), OK;
}
int cuMemHostAlloc(void **memory, size_t length, unsigned) {
    CALL;
    *memory = malloc(length);
    return OK;
}
int cuMemFreeHost(void *memory) { return free(memory), OK; }
int cuMemsetD8Async(u64 address, unsigned char value, size_t length, void *stream) {
    CALL;
    static_cast<Stream *>(stream)->operations.push_back([=] { memset(reinterpret_cast<void *>(address), value, length); });
    return OK;
}
int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t length, void *stream) {
    CALL;
    static_cast<Stream *>(stream)->operations.push_back([=] { memcpy(reinterpret_cast<void *>(to), from, length); });
    return OK;
}
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t length, void *stream) {
    CALL;
    static_cast<Stream *>(stream)->operations.push_back([=] { memcpy(to, reinterpret_cast<const void *>(from), length); });
    return OK;
}
int cuLaunchKernel(void *function, unsigned x, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *stream,
                   void **arguments, void **) {
    CALL;
    KernelArguments copy = *static_cast<const KernelArguments *>(arguments[0]);
    auto kernel = reinterpret_cast<void (*)(const KernelArguments *, unsigned)>(function);
    static_cast<Stream *>(stream)->operations.push_back([=] { kernel(&copy, x); });
    return OK;
}
}
