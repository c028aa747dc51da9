#include "engine/pjrt/plugin.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>

#include "base/mutex.h"
#include "base/shared_library.h"
#include "engine/pjrt/call.h"

namespace replicant::pjrt {
namespace {

// Version 0.57 has moved functions within PJRT_Api; since then they have only
// been added at its end (xla/pjrt/c/CHANGELOG.md).
constexpr int kOldestMinorVersion = 57;

struct Function {
  const char* name;
  size_t offset;  // in PJRT_Api
};
#define REPLICANT_FUNCTION(name) \
  Function { #name, offsetof(PJRT_Api, name) }
// The functions that this folder calls, except optional ones.
constexpr std::array kFunctions = {
    REPLICANT_FUNCTION(PJRT_Error_Destroy),
    REPLICANT_FUNCTION(PJRT_Error_Message),
    REPLICANT_FUNCTION(PJRT_Error_GetCode),
    REPLICANT_FUNCTION(PJRT_Plugin_Initialize),
    REPLICANT_FUNCTION(PJRT_Plugin_Attributes),
    REPLICANT_FUNCTION(PJRT_Event_Destroy),
    REPLICANT_FUNCTION(PJRT_Event_Await),
    REPLICANT_FUNCTION(PJRT_Client_Create),
    REPLICANT_FUNCTION(PJRT_Client_Destroy),
    REPLICANT_FUNCTION(PJRT_Client_PlatformName),
    REPLICANT_FUNCTION(PJRT_Client_PlatformVersion),
    REPLICANT_FUNCTION(PJRT_Client_AddressableDevices),
    REPLICANT_FUNCTION(PJRT_Client_Compile),
    REPLICANT_FUNCTION(PJRT_Client_BufferFromHostBuffer),
    REPLICANT_FUNCTION(PJRT_DeviceDescription_Id),
    REPLICANT_FUNCTION(PJRT_DeviceDescription_Kind),
    REPLICANT_FUNCTION(PJRT_Device_GetDescription),
    REPLICANT_FUNCTION(PJRT_Executable_Destroy),
    REPLICANT_FUNCTION(PJRT_Executable_NumOutputs),
    REPLICANT_FUNCTION(PJRT_Executable_OutputElementTypes),
    REPLICANT_FUNCTION(PJRT_Executable_OutputDimensions),
    REPLICANT_FUNCTION(PJRT_LoadedExecutable_Destroy),
    REPLICANT_FUNCTION(PJRT_LoadedExecutable_GetExecutable),
    REPLICANT_FUNCTION(PJRT_LoadedExecutable_Execute),
    REPLICANT_FUNCTION(PJRT_Buffer_Destroy),
    REPLICANT_FUNCTION(PJRT_Buffer_ToHostBuffer)};
#undef REPLICANT_FUNCTION

// By abseil.io/docs/cpp/guides/status-codes, whose codes these are.
std::string CodeName(PJRT_Error_Code code) {
  static constexpr std::array kNames = {"OK",
                                        "CANCELLED",
                                        "UNKNOWN",
                                        "INVALID_ARGUMENT",
                                        "DEADLINE_EXCEEDED",
                                        "NOT_FOUND",
                                        "ALREADY_EXISTS",
                                        "PERMISSION_DENIED",
                                        "RESOURCE_EXHAUSTED",
                                        "FAILED_PRECONDITION",
                                        "ABORTED",
                                        "OUT_OF_RANGE",
                                        "UNIMPLEMENTED",
                                        "INTERNAL",
                                        "UNAVAILABLE",
                                        "DATA_LOSS",
                                        "UNAUTHENTICATED"};
  const auto number = static_cast<size_t>(code);
  return number < kNames.size() ? kNames[number]
                                : fmt::format("error code {}", number);
}

std::string ValueText(const PJRT_NamedValue& value) {
  switch (value.type) {
    case PJRT_NamedValue_kString:
      return {value.string_value, value.value_size};
    case PJRT_NamedValue_kInt64:
      return fmt::format("{}", value.int64_value);
    case PJRT_NamedValue_kInt64List: {
      const int64_t* const numbers = value.int64_array_value;
      return fmt::format("{}",
                         fmt::join(numbers, numbers + value.value_size, "."));
    }
    case PJRT_NamedValue_kFloat:
      return fmt::format("{}", value.float_value);
    case PJRT_NamedValue_kBool:
      return value.bool_value ? "true" : "false";
  }
  return "?";
}

}  // namespace

const Plugin& Plugin::Load(const std::filesystem::path& file) {
  static Mutex mutex;
  static auto* const plugins =
      new std::map<std::string, std::unique_ptr<Plugin>>();
  const MutexLock lock(mutex);
  std::error_code ignored;
  const std::string name =
      std::filesystem::weakly_canonical(file, ignored).string();
  std::unique_ptr<Plugin>& plugin = (*plugins)[name];
  if (plugin == nullptr) {
    const SharedLibrary library(name, "give the file of a PJRT plugin");
    const PJRT_Api* (*get_api)() = nullptr;
    library.Find("GetPjrtApi", &get_api);
    plugin.reset(new Plugin(name, get_api()));
  }
  return *plugin;
}

Plugin::Plugin(std::string file, const PJRT_Api* api)
    : file_(std::move(file)), api_(api) {
  if (api_ == nullptr) {
    throw DeviceError(fmt::format("{}: GetPjrtApi() returned null", file_));
  }
  CheckFunctions();
  PJRT_Plugin_Initialize_Args args{};
  PJRT_CALL(*this, PJRT_Plugin_Initialize, args);
  ReadAttributes();
}

std::string Plugin::version() const {
  return fmt::format("{}.{}", api_->pjrt_api_version.major_version,
                     api_->pjrt_api_version.minor_version);
}

void Plugin::Check(PJRT_Error* error, const char* function) const {
  if (error == nullptr) return;
  PJRT_Error_GetCode_Args code{};
  code.struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE;
  code.error = error;
  code.code = PJRT_Error_Code_UNKNOWN;
  PJRT_Error_Destroy_Args destroy{};
  destroy.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = api_->PJRT_Error_GetCode(&code);
  // an error while reading an error
  if (destroy.error != nullptr) api_->PJRT_Error_Destroy(&destroy);
  PJRT_Error_Message_Args message{};
  message.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE;
  message.error = error;
  api_->PJRT_Error_Message(&message);
  const std::string text =
      fmt::format("{}: {}: {}: {}", file_, function, CodeName(code.code),
                  std::string_view(message.message, message.message_size));
  destroy.error = error;
  api_->PJRT_Error_Destroy(&destroy);
  throw DeviceError(text);
}

void Plugin::CheckFunctions() const {
  const auto lacks = [this](size_t offset, size_t size) {
    return offset + size > api_->struct_size;
  };
  if (lacks(offsetof(PJRT_Api, pjrt_api_version), sizeof(PJRT_Api_Version))) {
    throw DeviceError(
        fmt::format("{}: GetPjrtApi() returned a table of {} bytes, too short "
                    "to hold a version",
                    file_, api_->struct_size));
  }
  const PJRT_Api_Version& has = api_->pjrt_api_version;
  if (has.major_version != PJRT_API_MAJOR ||
      has.minor_version < kOldestMinorVersion) {
    throw DeviceError(fmt::format(
        "{}: the plugin has version {} of the PJRT interface; allowed: {}.{} "
        "and newer, of the same major version; hint: install {} plugin",
        file_, version(), PJRT_API_MAJOR, kOldestMinorVersion,
        has.major_version > PJRT_API_MAJOR ? "an older" : "a newer"));
  }
  std::vector<std::string_view> missing;
  for (const Function& function : kFunctions) {
    void* address = nullptr;
    if (!lacks(function.offset, sizeof(address))) {
      std::memcpy(&address,
                  reinterpret_cast<const std::byte*>(api_) + function.offset,
                  sizeof(address));
    }
    if (address == nullptr) missing.emplace_back(function.name);
  }
  if (!missing.empty()) {
    throw DeviceError(
        fmt::format("{}: the plugin, of version {} of the PJRT interface, has "
                    "no {}",
                    file_, version(), fmt::join(missing, ", ")));
  }
}

void Plugin::ReadAttributes() {
  PJRT_Plugin_Attributes_Args args{};
  PJRT_CALL(*this, PJRT_Plugin_Attributes, args);
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& value = args.attributes[i];
    attributes_.emplace_back(std::string(value.name, value.name_size),
                             ValueText(value));
  }
}

}  // namespace replicant::pjrt
