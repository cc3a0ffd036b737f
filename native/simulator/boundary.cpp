#include "boundary.hpp"

#include <new>
#include <stdexcept>
#include <system_error>

#include "log.hpp"

namespace sim {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

Caught report(const char* call, std::uint32_t id, const char* reason) noexcept {
    log_error(call, reason);
    return Caught(axcl::make_error(sub_of(call), id));
}

}  // namespace

axcl::Sub sub_of(std::string_view call) {
    if (has(call, "Engine")) return axcl::Sub::engine;
    if (has(call, "Stream") || has(call, "Event")) return axcl::Sub::stream;
    if (has(call, "Context")) return axcl::Sub::context;
    if (has(call, "Mem") || has(call, "Malloc") || has(call, "Free")) return axcl::Sub::memory;
    return axcl::Sub::device;
}

Caught caught(const char* call) noexcept {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        return report(call, axcl::id::kNoMemory, "the host has no memory");
    } catch (const std::length_error&) {
        return report(call, axcl::id::kNoMemory, "the host has no memory");
    } catch (const std::system_error& error) {
        const bool memory = error.code() == std::errc::not_enough_memory;
        return report(call, memory ? axcl::id::kNoMemory : axcl::id::kBusy, error.what());
    } catch (const std::exception& error) {
        return report(call, axcl::id::kUnknown, error.what());
    } catch (...) {
        return report(call, axcl::id::kUnknown, "an exception of no known type");
    }
}

}  // namespace sim
