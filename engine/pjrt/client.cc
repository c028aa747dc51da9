#include "engine/pjrt/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <type_traits>
#include <utility>

#include "engine/pjrt/call.h"
#include "engine/pjrt/element_type.h"

namespace replicant::pjrt {

template <>
void Destroyer<PJRT_Client>::operator()(PJRT_Client* client) const {
  PJRT_Client_Destroy_Args args{};
  args.client = client;
  PJRT_CALL_NOTHROW(*plugin, PJRT_Client_Destroy, args);
}

namespace {

PJRT_NamedValue ToPjrt(const ClientOption& option) {
  PJRT_NamedValue named{};
  named.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  named.name = option.first.data();
  named.name_size = option.first.size();
  named.value_size = 1;
  std::visit(
      [&named](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>) {
          named.type = PJRT_NamedValue_kString;
          named.string_value = value.data();
          named.value_size = value.size();
        } else if constexpr (std::is_same_v<T, bool>) {
          named.type = PJRT_NamedValue_kBool;
          named.bool_value = value;
        } else if constexpr (std::is_same_v<T, int64_t>) {
          named.type = PJRT_NamedValue_kInt64;
          named.int64_value = value;
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          named.type = PJRT_NamedValue_kInt64List;
          named.int64_array_value = value.data();
          named.value_size = value.size();
        } else {
          named.type = PJRT_NamedValue_kFloat;
          named.float_value = value;
        }
      },
      option.second);
  return named;
}

PJRT_Client* CreateClient(const Plugin& plugin,
                          const std::vector<ClientOption>& options) {
  std::vector<PJRT_NamedValue> values;
  values.reserve(options.size());
  for (const ClientOption& option : options) values.push_back(ToPjrt(option));
  PJRT_Client_Create_Args args{};
  args.create_options = values.data();
  args.num_options = values.size();
  PJRT_CALL(plugin, PJRT_Client_Create, args);
  return args.client;
}

// The whole of `text` as a number.
template <typename T>
bool ParseWhole(std::string_view text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end;
}

// Whole numbers with a comma behind each, which the last may lack. A text
// without a comma is none.
std::optional<std::vector<int64_t>> ParseList(std::string_view text) {
  if (text.find(',') == std::string_view::npos) return std::nullopt;
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (!ParseWhole(text.substr(0, end), &numbers.emplace_back())) {
      return std::nullopt;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return numbers;
}

}  // namespace

ClientOption ParseClientOption(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw InvalidArgument(
        fmt::format("'{}' is not a plugin option; allowed: NAME=VALUE", text));
  }
  ClientOption option;
  option.first = text.substr(0, equals);
  const std::string_view value = text.substr(equals + 1);
  int64_t whole = 0;
  float decimal = 0.0F;
  if (value == "true" || value == "false") {
    option.second = value == "true";
  } else if (ParseWhole(value, &whole)) {
    option.second = whole;
  } else if (ParseWhole(value, &decimal)) {
    option.second = decimal;
  } else if (auto list = ParseList(value)) {
    option.second = *std::move(list);
  } else {
    option.second = std::string(value);
  }
  return option;
}

Client::Client(const Plugin& plugin, const std::vector<ClientOption>& options)
    : client_(CreateClient(plugin, options), {&plugin}) {
  ReadPlatform();
  ReadDevices();
}

void Client::ReadPlatform() {
  PJRT_Client_PlatformName_Args name{};
  name.client = client_.get();
  PJRT_CALL(plugin(), PJRT_Client_PlatformName, name);
  platform_.assign(name.platform_name, name.platform_name_size);
  PJRT_Client_PlatformVersion_Args version{};
  version.client = client_.get();
  PJRT_CALL(plugin(), PJRT_Client_PlatformVersion, version);
  platform_version_.assign(version.platform_version,
                           version.platform_version_size);
}

void Client::ReadDevices() {
  PJRT_Client_AddressableDevices_Args list{};
  list.client = client_.get();
  PJRT_CALL(plugin(), PJRT_Client_AddressableDevices, list);
  for (size_t i = 0; i < list.num_addressable_devices; ++i) {
    PJRT_Device_GetDescription_Args description{};
    description.device = list.addressable_devices[i];
    PJRT_CALL(plugin(), PJRT_Device_GetDescription, description);
    PJRT_DeviceDescription_Id_Args id{};
    id.device_description = description.device_description;
    PJRT_CALL(plugin(), PJRT_DeviceDescription_Id, id);
    PJRT_DeviceDescription_Kind_Args kind{};
    kind.device_description = description.device_description;
    PJRT_CALL(plugin(), PJRT_DeviceDescription_Kind, kind);
    devices_.push_back({description.device, id.id,
                        std::string(kind.device_kind, kind.device_kind_size)});
  }
  if (devices_.empty()) {
    throw DeviceError(fmt::format("{}: platform {} has no device",
                                  plugin().file(), platform_));
  }
}

Upload Client::CopyToDevice(TensorView host, int device) const {
  PJRT_Client_BufferFromHostBuffer_Args args{};
  args.client = client_.get();
  args.data = host.data();
  args.type = ToPjrt(host.dtype());
  args.dims = host.shape().dims().data();
  args.num_dims = host.shape().dims().size();
  args.host_buffer_semantics =
      PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  args.device = at(device).device;
  PJRT_CALL(plugin(), PJRT_Client_BufferFromHostBuffer, args);
  return {Buffer(plugin(), args.buffer),
          Event(plugin(), args.done_with_host_buffer,
                "PJRT_Client_BufferFromHostBuffer")};
}

Executable Client::Compile(std::string_view module,
                           const CompileOptions& options) const {
  static constexpr std::string_view kFormat = "mlir";
  // the plugin reads the text only
  std::string text(module);
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = text.data();
  program.code_size = text.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  const std::string encoded = Encode(options);
  PJRT_Client_Compile_Args args{};
  args.client = client_.get();
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  PJRT_CALL(plugin(), PJRT_Client_Compile, args);
  return {plugin(), args.executable, options.device_ids.size()};
}

}  // namespace replicant::pjrt
