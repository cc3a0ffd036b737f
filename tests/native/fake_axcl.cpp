// A libaxcl_rt.so for the runner's tests: it computes next to nothing and writes every call down, one JSON object a
// line.
//
// Engines are JSON files: {"kind": "layer", "hidden", "kv", "rows", "groups": [[tokens, history], ...]} or
// {"kind": "post", "hidden", "vocab"}. The first element of a hidden row is a token id; a layer hands rows on and keeps
// the id as the row's K and V; the post engine likes id + 1 best. FAKE_AXCL names a JSON file: "log" and the faults
// below.
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "axcl_abi.hpp"

using nlohmann::json;

namespace {

using Bytes = std::vector<std::uint8_t>;

struct Port {
    std::string name;
    bool index;
    std::vector<std::uint64_t> bytes;
};
struct Model {
    json source;
    std::string file;
    std::vector<Port> in, out;
};
struct Slot {
    std::uint64_t address = 0, bytes = 0;
};
struct IoObject {
    Model* model;
    std::vector<Slot> in, out;
};
struct State {
    json options;
    std::ofstream log;
    std::map<std::uint64_t, Bytes> memory;
    std::vector<std::unique_ptr<Model>> models;
    std::uint64_t next = 0x7000000000;
    int loads = 0, lists = 0, executes = 0;
};

State& state() {
    static State* s = [] {
        auto* made = new State;
        std::ifstream(std::getenv("FAKE_AXCL")) >> made->options;
        made->log.open(made->options.at("log").get<std::string>());
        return made;
    }();
    return *s;
}

int option(const char* name) { return state().options.value(name, 0); }

void note(json entry) { state().log << entry.dump() << std::endl; }

std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

std::uint8_t* device(std::uint64_t address) {
    auto found = state().memory.upper_bound(address);
    if (found == state().memory.begin()) return nullptr;
    --found;
    return address - found->first < found->second.size() ? found->second.data() + (address - found->first) : nullptr;
}

std::vector<unsigned> row_heads(std::uint64_t address, std::uint64_t rows, std::uint64_t row_bytes) {
    std::vector<unsigned> heads;
    for (std::uint64_t r = 0; r < rows; ++r) {
        std::uint16_t head;
        std::memcpy(&head, device(address + r * row_bytes), 2);
        heads.push_back(head);
    }
    return heads;
}

void add_layer_ports(Model& model) {
    const json& s = model.source;
    const std::uint64_t hidden = s["hidden"], kv = s["kv"], rows = s["rows"];
    model.in = {{"K_cache", false, {}},
                {"V_cache", false, {}},
                {"indices", true, {}},
                {"input", false, {}},
                {"mask", false, {}}};
    model.out = {{"K_cache_out", false, {}}, {"V_cache_out", false, {}}, {"output", false, {}}};
    for (const auto& group : s["groups"]) {
        const std::uint64_t m = group[0], history = group[1];
        const std::uint64_t cache = 2 * kv * (m == 1 ? rows : std::max<std::uint64_t>(history, 1));
        const std::array<std::uint64_t, 5> in{cache, cache, 4 * m, 2 * m * hidden, 2 * m * (history + m)};
        const std::array<std::uint64_t, 3> out{2 * m * kv, 2 * m * kv, 2 * m * hidden};
        for (std::size_t i = 0; i < in.size(); ++i) model.in[i].bytes.push_back(in[i]);
        for (std::size_t i = 0; i < out.size(); ++i) model.out[i].bytes.push_back(out[i]);
    }
    if (s.contains("extra_output"))
        model.out.push_back({s["extra_output"], false, std::vector<std::uint64_t>(s["groups"].size(), 2)});
}

void run_layer(const Model& model, const IoObject& io, std::uint32_t group) {
    const std::uint64_t m = model.source["groups"][group][0], kv = model.source["kv"], hidden = model.source["hidden"];
    const std::uint8_t* input = device(io.in[3].address);
    for (std::uint64_t r = 0; r < m; ++r) {
        for (int side : {0, 1}) std::memcpy(device(io.out[side].address) + r * kv * 2, input + r * hidden * 2, 2);
    }
    if (m == 1 || m >= 64) std::memcpy(device(io.out[2].address), input, 2 * m * hidden);
}

void run_post(const Model& model, const IoObject& io) {
    const std::uint64_t vocab = model.source["vocab"];
    std::uint16_t token;
    std::memcpy(&token, device(io.in[0].address), 2);
    auto* logits = reinterpret_cast<std::uint16_t*>(device(io.out[0].address));
    const bool poison = token + 1 == option("nan_token");
    for (std::uint64_t j = 0; j < vocab; ++j) logits[j] = poison ? 0x7FC0 : (j == (token + 1U) % vocab ? 0x4080 : 0);
}

// Runs the stack full, as a library with a fault of its own may.
int overflow(int depth) {
    volatile char room[4096];
    room[0] = 1;
    return room[0] == 1 ? overflow(depth + 1) + room[0] : depth;
}

json slots(const std::vector<Port>& ports, const std::vector<Slot>& bound) {
    json list = json::object();
    for (std::size_t i = 0; i < ports.size(); ++i) list[ports[i].name] = {bound[i].address, bound[i].bytes};
    return list;
}

axcl::Error fail(std::uint32_t id) { return axcl::make_error(axcl::Sub::engine, id); }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define PLAIN(name, parameters)          \
    EXPORT axcl::Error name parameters { \
        note({{"call", #name}});         \
        return 0;                        \
    }

PLAIN(axclSetLogLevel, (std::int32_t))
PLAIN(axclrtResetDevice, (std::int32_t))
PLAIN(axclrtDestroyContext, (axcl::Context))
PLAIN(axclrtSetCurrentContext, (axcl::Context))
PLAIN(axclrtEngineFinalize, ())
PLAIN(axclrtEngineGetVNpuKind, (axcl::VnpuKind*))
PLAIN(axclrtEngineDestroyIOInfo, (axcl::IoInfo))

EXPORT axcl::Error axclInit(const char*) {
    note({{"call", "axclInit"}});
    return option("no_card") ? axcl::kInitNoCard : 0;
}

EXPORT axcl::Error axclFinalize() {
    note({{"call", "axclFinalize"}});
    std::this_thread::sleep_for(std::chrono::seconds(option("hang_finalize")));
    return 0;
}

EXPORT axcl::Error axclrtGetDeviceList(axcl::DeviceList* list) {
    note({{"call", "axclrtGetDeviceList"}});
    const bool there = ++state().lists > option("absent_lists");
    list->num = there ? 2 : 0;
    list->devices[0] = 3;
    list->devices[1] = 129;
    return 0;
}

EXPORT axcl::Error axclrtSetDevice(std::int32_t id) {
    note({{"call", "axclrtSetDevice"}, {"id", id}});
    return state().lists > 0 ? 0 : axcl::kDeviceInvalidId;
}

EXPORT axcl::Error axclrtCreateContext(axcl::Context* context, std::int32_t) {
    note({{"call", "axclrtCreateContext"}});
    *context = &state();
    return 0;
}

EXPORT axcl::Error axclrtEngineInit(axcl::VnpuKind) {
    note({{"call", "axclrtEngineInit"}});
    return option("engine_initialised") ? fail(axcl::id::kBusy) : 0;
}

EXPORT axcl::Error axclrtMalloc(void** out, std::size_t size, axcl::MallocPolicy) {
    const std::uint64_t address = state().next;
    state().next += (size + 4095) / 4096 * 4096 + 4096;
    state().memory[address] = Bytes(size, 0xFF);
    note({{"call", "axclrtMalloc"}, {"address", address}, {"bytes", size}});
    *out = reinterpret_cast<void*>(address);
    return 0;
}

EXPORT axcl::Error axclrtFree(void* memory) {
    note({{"call", "axclrtFree"}, {"known", state().memory.erase(number(memory))}});
    return 0;
}

EXPORT axcl::Error axclrtMallocHost(void** out, std::size_t size) {
    *out = std::malloc(size);
    return 0;
}

EXPORT axcl::Error axclrtFreeHost(void* memory) {
    std::free(memory);
    return 0;
}

EXPORT axcl::Error axclrtMemset(void* memory, std::uint8_t value, std::size_t size) {
    note({{"call", "axclrtMemset"}, {"address", number(memory)}, {"value", value}, {"bytes", size}});
    std::memset(device(number(memory)), value, size);
    return 0;
}

EXPORT axcl::Error axclrtMemcpy(void* to, const void* from, std::size_t size, axcl::MemcpyKind kind) {
    note({{"call", "axclrtMemcpy"},
          {"to", number(to)},
          {"from", number(from)},
          {"bytes", size},
          {"kind", static_cast<int>(kind)}});
    const bool to_device = kind != axcl::MemcpyKind::device_to_host;
    const bool from_device = kind != axcl::MemcpyKind::host_to_device;
    std::memmove(to_device ? device(number(to)) : to, from_device ? device(number(from)) : from, size);
    return 0;
}

EXPORT axcl::Error axclrtEngineLoadFromFile(const char* path, axcl::ModelId* id) {
    note({{"call", "axclrtEngineLoadFromFile"}, {"path", path}});
    if (++state().loads <= option("load_failures")) return fail(axcl::id::kUnknown);
    auto model = std::make_unique<Model>();
    model->source = json::parse(std::ifstream(path), nullptr, false);
    model->file = path;
    if (!model->source.is_object()) return axcl::kEngineDecode;
    if (model->source["kind"] == "layer") {
        add_layer_ports(*model);
    } else {
        model->in = {{"input", false, {model->source["hidden"].get<std::uint64_t>() * 2}}};
        model->out = {{"output", false, {model->source["vocab"].get<std::uint64_t>() * 2}}};
    }
    state().models.push_back(std::move(model));
    *id = state().models.size();
    return 0;
}

EXPORT axcl::Error axclrtEngineUnload(axcl::ModelId id) {
    note({{"call", "axclrtEngineUnload"}, {"model", id}});
    return 0;
}

EXPORT axcl::Error axclrtEngineGetIOInfo(axcl::ModelId id, axcl::IoInfo* info) {
    *info = state().models[id - 1].get();
    return 0;
}

EXPORT axcl::Error axclrtEngineGetShapeGroupsCount(axcl::IoInfo info, std::int32_t* count) {
    *count = static_cast<std::int32_t>(static_cast<Model*>(info)->in[0].bytes.size());
    return 0;
}

#define PORTS(side, member)                                                                                        \
    EXPORT std::uint32_t axclrtEngineGetNum##side##s(axcl::IoInfo info) {                                          \
        if (option("huge_counts")) return 0x80300702U;                                                             \
        return static_cast<std::uint32_t>(static_cast<Model*>(info)->member.size());                               \
    }                                                                                                              \
    EXPORT std::uint64_t axclrtEngineGet##side##SizeByIndex(axcl::IoInfo info, std::uint32_t g, std::uint32_t i) { \
        if (option("huge_sizes")) return 0xFFFFFFFF80300781U;                                                      \
        return static_cast<Model*>(info)->member[i].bytes[g];                                                      \
    }                                                                                                              \
    EXPORT const char* axclrtEngineGet##side##NameByIndex(axcl::IoInfo info, std::uint32_t i) {                    \
        return static_cast<Model*>(info)->member[i].name.c_str();                                                  \
    }                                                                                                              \
    EXPORT std::int32_t axclrtEngineGet##side##IndexByName(axcl::IoInfo info, const char* name) {                  \
        const auto& ports = static_cast<Model*>(info)->member;                                                     \
        for (std::size_t i = 0; i < ports.size(); ++i) {                                                           \
            if (ports[i].name == name) return static_cast<std::int32_t>(i);                                        \
        }                                                                                                          \
        return fail(axcl::id::kIllegalParam);                                                                      \
    }                                                                                                              \
    EXPORT axcl::Error axclrtEngineGet##side##DataType(axcl::IoInfo info, std::uint32_t i, axcl::DataType* type) { \
        *type = static_cast<Model*>(info)->member[i].index ? axcl::DataType::uint32 : axcl::DataType::bf16;        \
        return 0;                                                                                                  \
    }                                                                                                              \
    EXPORT axcl::Error axclrtEngineSet##side##BufferByIndex(axcl::Io io, std::uint32_t i, const void* memory,      \
                                                            std::uint64_t size) {                                  \
        static_cast<IoObject*>(io)->member[i] = {number(memory), size};                                            \
        return 0;                                                                                                  \
    }
PORTS(Input, in)
PORTS(Output, out)

EXPORT axcl::Error axclrtEngineCreateIO(axcl::IoInfo info, axcl::Io* io) {
    auto* model = static_cast<Model*>(info);
    *io = new IoObject{model, std::vector<Slot>(model->in.size()), std::vector<Slot>(model->out.size())};
    return 0;
}

EXPORT axcl::Error axclrtEngineDestroyIO(axcl::Io io) {
    note({{"call", "axclrtEngineDestroyIO"}});
    std::this_thread::sleep_for(std::chrono::seconds(option("hang_seconds")));
    delete static_cast<IoObject*>(io);
    return 0;
}

EXPORT axcl::Error axclrtEngineCreateContext(axcl::ModelId, axcl::EngineContextId* context) {
    *context = 1;
    return 0;
}

EXPORT axcl::Error axclrtEngineExecute(axcl::ModelId id, axcl::EngineContextId, std::uint32_t group, axcl::Io handle) {
    const Model& model = *state().models[id - 1];
    const IoObject& io = *static_cast<IoObject*>(handle);
    json entry{{"call", "axclrtEngineExecute"},  {"model", id},
               {"kind", model.source["kind"]},   {"group", group},
               {"io", number(handle)},           {"in", slots(model.in, io.in)},
               {"out", slots(model.out, io.out)}};
    const bool layer = model.source["kind"] == "layer";
    if (layer) {
        const std::uint64_t row = model.source["kv"].get<std::uint64_t>() * 2;
        const std::uint64_t m = model.source["groups"][group][0];
        entry["tokens"] = row_heads(io.in[3].address, m, io.in[3].bytes / m);
        entry["keys"] = row_heads(io.in[0].address, io.in[0].bytes / row, row);
        entry["values"] = row_heads(io.in[1].address, io.in[1].bytes / row, row);
        entry["mask"] = row_heads(io.in[4].address, io.in[4].bytes / 2, 2);
        entry["indices"] = row_heads(io.in[2].address, m, 4);
    }
    note(entry);
    std::this_thread::sleep_for(std::chrono::milliseconds(option("execute_ms")));
    if (state().executes + 1 == option("hang_execute")) std::this_thread::sleep_for(std::chrono::seconds(100));
    if (option("overflow_execute")) return overflow(0);
    if (++state().executes == option("failing_execute")) return axcl::kEngineExecute;
    if (layer)
        run_layer(model, io, group);
    else
        run_post(model, io);
    return 0;
}
