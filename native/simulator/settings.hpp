// Everything the simulator takes from the environment; no other file reads it.
#pragma once

#include <cstdint>
#include <string>

namespace sim {

struct Settings {
    unsigned threads = 1;         // ENGINESET_SIM_THREADS: 1..256, default: all hardware threads
    std::string isa;              // ENGINESET_SIM_ISA: avx512, avx2, neon or generic; empty: the best this CPU has
    unsigned cards = 1;           // ENGINESET_SIM_CARDS: 0 (a host with no card) or 1
    std::uint64_t load_fault = 0; // ENGINESET_SIM_FAULTS load=N: every Nth load fails; 0: none
    bool wedged = false;          // ENGINESET_SIM_FAULTS wedged: engines load, every execution fails
};

// Reads the settings. On a value it does not know it returns false and puts one line into `error`.
bool read_settings(Settings& settings, std::string& error);

}  // namespace sim
