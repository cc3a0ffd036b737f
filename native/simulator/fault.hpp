// Why an engine file is refused: one line, thrown by the parsers and caught where an engine is loaded.
#pragma once

#include <stdexcept>

namespace sim {

class EngineFault : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

}  // namespace sim
