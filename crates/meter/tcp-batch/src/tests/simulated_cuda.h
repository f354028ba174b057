// CUDA for an ordinary C++ compiler: the threads of a block are a loop. Threads that work alone are
// distributed to several threads of the system, to test their concurrency.
#pragma once

#include <thread>
#include <vector>

#define WEIR_FUNCTION
#define WEIR_APART inline
#define WEIR_SHARED
#define WEIR_ADD(number, more) __atomic_fetch_add(number, more, __ATOMIC_RELAXED)
#define WEIR_SWAP(word, from, to) weir_swap(word, from, to)
#define WEIR_READ(word) __atomic_load_n(word, __ATOMIC_ACQUIRE)
#define WEIR_FENCE()
#define WEIR_THREADS(name)                                                                                              \
    extern "C" void weir_##name(const KernelArguments *arguments, unsigned int) {                                       \
        weir_all(arguments->threads, [=](unsigned int thread) { name(*arguments, thread); });                           \
    }
#define WEIR_BLOCKS(name, most)                                                                                         \
    extern "C" void weir_##name(const KernelArguments *arguments, unsigned int blocks) {                                \
        weir_all(blocks, [=](unsigned int block) { name(*arguments, block); });                                         \
    }
#define EACH(item, count) for (u32 item = 0; item < (count); item++)
#define ALONE
#define JOIN()

static inline unsigned long long weir_swap(unsigned long long *word, unsigned long long from, unsigned long long to) {
    __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return from;
}

// A few are faster on one thread.
template <class Work> void weir_all(unsigned int count, Work work) {
    const unsigned int threads = count < 200 ? 1 : 4;
    auto some = [=](unsigned int first) {
        for (unsigned int at = first; at < count; at += threads) work(at);
    };
    std::vector<std::thread> others;
    for (unsigned int first = 1; first < threads; first++) others.emplace_back(some, first);
    some(0);
    for (auto &other : others) other.join();
}
