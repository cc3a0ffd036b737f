// What can go wrong, one class per way of going on.
#pragma once

#include <stdexcept>
#include <string>

namespace runner {

inline constexpr int kExitFault = 1, kExitUsage = 2, kExitSignal = 128;  // a signal's number is added

// A set, a library or a request that is wrong. `what()` names the file or field and both sides.
class Fault : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A driver call failed: nothing that the card says afterwards can be trusted.
class DeviceFault : public Fault {
    using Fault::Fault;
};

// Nobody reads standard output any more.
class OutputClosed : public Fault {
    using Fault::Fault;
};

// SIGINT, SIGTERM or SIGHUP arrived; thrown between driver calls only.
struct Interrupted {
    int signal;
};

// The text with every line break and control character made a space.
inline std::string one_line(std::string text) {
    for (char& c : text) {
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    }
    return text;
}

}  // namespace runner
