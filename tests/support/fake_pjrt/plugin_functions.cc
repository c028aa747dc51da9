// The functions of the fake plugin: a separate shared library.
#include <cstring>
#include <memory>
#include <utility>

#include "tests/support/fake_pjrt/fake_pjrt.h"
#include "tests/support/fake_pjrt/module_signature.h"

using replicant::testing::FakePjrt;
using replicant::testing::FakeTensor;
using replicant::testing::FakeType;
using replicant::testing::ModuleSignature;

struct PJRT_Error {
  PJRT_Error_Code code;
  std::string message;
};

// Runs `work` when it is awaited, or needed before.
struct PJRT_Event {
  std::shared_ptr<std::function<void()>> work;
  bool fails = false;
};

struct PJRT_DeviceDescription {
  int id = 0;
  std::string kind = "fake device";
};

struct PJRT_Device {
  PJRT_DeviceDescription description;
};

struct PJRT_Client {
  std::vector<PJRT_Device> devices;
  std::vector<PJRT_Device*> list;
};

struct PJRT_Buffer {
  // kept by an upload under way
  std::shared_ptr<FakeTensor> tensor = std::make_shared<FakeTensor>();
  bool is_donated = false;
  // reads the host's memory
  std::shared_ptr<std::function<void()>> upload;
};

// A compiled module, loaded or not.
struct PJRT_Executable {
  ModuleSignature signature;
  std::vector<PJRT_Buffer_Type> types;
  std::vector<int64_t> dims;
  std::vector<size_t> ranks;
};
struct PJRT_LoadedExecutable {
  PJRT_Executable executable;
};

namespace {

FakePjrt& State() {
  static auto* const state = new FakePjrt();
  return *state;
}

PJRT_Error* Fail(PJRT_Error_Code code, const std::string& message) {
  auto* error = new PJRT_Error{code, message};
  State().live[error] = "error";
  return error;
}

// A forbidden use.
PJRT_Error* Refuse(const std::string& message) {
  State().problems.push_back(message);
  return Fail(PJRT_Error_Code_INVALID_ARGUMENT, message);
}

// Records a call. Returns the error that the test wants, if any.
PJRT_Error* Begin(const char* function, size_t size, size_t wanted) {
  FakePjrt& state = State();
  state.calls.emplace_back(function);
  if (size < wanted) return Refuse(std::string(function) + ": small struct");
  if (state.failing_call == state.calls.size() - 1 ||
      state.failing_function == function) {
    return Fail(PJRT_Error_Code_INTERNAL, "the call was told to fail");
  }
  return nullptr;
}
#define BEGIN(function)                                                       \
  if (PJRT_Error* begun =                                                     \
          Begin(#function, args->struct_size, function##_Args_STRUCT_SIZE)) { \
    return begun;                                                             \
  }

template <typename T>
T* Register(T* object, const char* kind) {
  State().live[object] = kind;
  return object;
}

bool IsLive(const void* object) { return State().live.contains(object); }

// Frees an object even if the call fails: nobody could try again.
template <typename T>
PJRT_Error* Destroy(T* object, PJRT_Error* begun) {
  if (State().live.erase(object) == 0) return Refuse("destroyed twice");
  delete object;
  return begun;
}

PJRT_Event* MakeEvent(std::function<void()> work) {
  FakePjrt& state = State();
  return Register(
      new PJRT_Event{std::make_shared<std::function<void()>>(std::move(work)),
                     state.failing_event == state.num_events++},
      "event");
}

// Work is done once.
void Do(const std::shared_ptr<std::function<void()>>& work) {
  if (work == nullptr || !*work) return;
  const std::function<void()> once = std::exchange(*work, nullptr);
  once();
}

// --- errors ---

void ErrorDestroy(PJRT_Error_Destroy_Args* args) {
  if (args->error == nullptr) return;
  State().live.erase(args->error);
  delete args->error;
}

void ErrorMessage(PJRT_Error_Message_Args* args) {
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}

PJRT_Error* ErrorGetCode(PJRT_Error_GetCode_Args* args) {
  args->code = args->error->code;
  return nullptr;
}

// --- plugin ---

PJRT_Error* PluginInitialize(PJRT_Plugin_Initialize_Args* args) {
  BEGIN(PJRT_Plugin_Initialize);
  return nullptr;
}

PJRT_NamedValue Named(const char* name, PJRT_NamedValue_Type type) {
  PJRT_NamedValue value{};
  value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  value.name = name;
  value.name_size = std::strlen(name);
  value.type = type;
  value.value_size = 1;
  return value;
}

PJRT_Error* PluginAttributes(PJRT_Plugin_Attributes_Args* args) {
  BEGIN(PJRT_Plugin_Attributes);
  static constexpr int64_t kVersion[] = {1, 13, 3};
  static auto* const values = new std::vector<PJRT_NamedValue>([] {
    PJRT_NamedValue text = Named("compiler", PJRT_NamedValue_kString);
    text.string_value = "fake";
    text.value_size = 4;
    PJRT_NamedValue number = Named("xla_version", PJRT_NamedValue_kInt64);
    number.int64_value = 2;
    PJRT_NamedValue list =
        Named("stablehlo_current_version", PJRT_NamedValue_kInt64List);
    list.int64_array_value = kVersion;
    list.value_size = 3;
    PJRT_NamedValue flag = Named("is_fake", PJRT_NamedValue_kBool);
    flag.bool_value = true;
    PJRT_NamedValue real = Named("speed", PJRT_NamedValue_kFloat);
    real.float_value = 0.5F;
    return std::vector{text, number, list, flag, real};
  }());
  args->attributes = values->data();
  args->num_attributes = values->size();
  return nullptr;
}

// --- events ---

PJRT_Error* EventDestroy(PJRT_Event_Destroy_Args* args) {
  return Destroy(args->event, Begin("PJRT_Event_Destroy", args->struct_size,
                                    PJRT_Event_Destroy_Args_STRUCT_SIZE));
}

PJRT_Error* EventAwait(PJRT_Event_Await_Args* args) {
  if (!IsLive(args->event)) return Refuse("an event that is none");
  Do(args->event->work);
  BEGIN(PJRT_Event_Await);
  if (args->event->fails) {
    return Fail(PJRT_Error_Code_DATA_LOSS, "the event was told to fail");
  }
  return nullptr;
}

// --- client ---

std::string OptionText(const PJRT_NamedValue& option) {
  std::string text(option.name, option.name_size);
  switch (option.type) {
    case PJRT_NamedValue_kString:
      return text + "=" + std::string(option.string_value, option.value_size);
    case PJRT_NamedValue_kInt64:
      return text + "=" + std::to_string(option.int64_value);
    case PJRT_NamedValue_kBool:
      return text + (option.bool_value ? "=true" : "=false");
    case PJRT_NamedValue_kInt64List:
      text += "=";
      for (size_t i = 0; i < option.value_size; ++i) {
        text += "[" + std::to_string(option.int64_array_value[i]) + "]";
      }
      return text;
    default:
      return text + "=" + std::to_string(option.float_value);
  }
}

PJRT_Error* ClientCreate(PJRT_Client_Create_Args* args) {
  BEGIN(PJRT_Client_Create);
  FakePjrt& state = State();
  for (size_t i = 0; i < args->num_options; ++i) {
    state.options.push_back(OptionText(args->create_options[i]));
  }
  auto* client = Register(new PJRT_Client(), "client");
  client->devices.resize(static_cast<size_t>(state.num_devices));
  for (PJRT_Device& device : client->devices) {
    // ids need not be places
    device.description.id = 10 + static_cast<int>(client->list.size());
    client->list.push_back(&device);
  }
  args->client = client;
  return nullptr;
}

PJRT_Error* ClientDestroy(PJRT_Client_Destroy_Args* args) {
  PJRT_Error* begun = Begin("PJRT_Client_Destroy", args->struct_size,
                            PJRT_Client_Destroy_Args_STRUCT_SIZE);
  for (const auto& [object, kind] : State().live) {
    if (kind == "buffer" || kind == "executable") {
      State().problems.push_back("a client destroyed before its " + kind);
    }
  }
  return Destroy(args->client, begun);
}

PJRT_Error* ClientPlatformName(PJRT_Client_PlatformName_Args* args) {
  BEGIN(PJRT_Client_PlatformName);
  args->platform_name = "fake";
  args->platform_name_size = 4;
  return nullptr;
}

PJRT_Error* ClientPlatformVersion(PJRT_Client_PlatformVersion_Args* args) {
  BEGIN(PJRT_Client_PlatformVersion);
  args->platform_version = "version 1";
  args->platform_version_size = 9;
  return nullptr;
}

PJRT_Error* ClientAddressableDevices(
    PJRT_Client_AddressableDevices_Args* args) {
  BEGIN(PJRT_Client_AddressableDevices);
  args->addressable_devices = args->client->list.data();
  args->num_addressable_devices = args->client->list.size();
  return nullptr;
}

PJRT_Error* DeviceGetDescription(PJRT_Device_GetDescription_Args* args) {
  BEGIN(PJRT_Device_GetDescription);
  args->device_description = &args->device->description;
  return nullptr;
}

PJRT_Error* DescriptionId(PJRT_DeviceDescription_Id_Args* args) {
  BEGIN(PJRT_DeviceDescription_Id);
  args->id = args->device_description->id;
  return nullptr;
}

PJRT_Error* DescriptionKind(PJRT_DeviceDescription_Kind_Args* args) {
  BEGIN(PJRT_DeviceDescription_Kind);
  args->device_kind = args->device_description->kind.data();
  args->device_kind_size = args->device_description->kind.size();
  return nullptr;
}

PJRT_Error* ClientBufferFromHostBuffer(
    PJRT_Client_BufferFromHostBuffer_Args* args) {
  BEGIN(PJRT_Client_BufferFromHostBuffer);
  FakeType type{args->type, {args->dims, args->dims + args->num_dims}};
  auto* buffer = Register(new PJRT_Buffer(), "buffer");
  *buffer->tensor = {.type = type.type, .dims = type.dims, .bytes = {}};
  const size_t size = SizeInBytes(type);
  PJRT_Event* event =
      MakeEvent([tensor = buffer->tensor, data = args->data, size] {
        tensor->bytes.resize(size);
        if (size > 0) std::memcpy(tensor->bytes.data(), data, size);
      });
  buffer->upload = event->work;
  args->buffer = buffer;
  args->done_with_host_buffer = event;
  return nullptr;
}

PJRT_Error* ClientCompile(PJRT_Client_Compile_Args* args) {
  BEGIN(PJRT_Client_Compile);
  FakePjrt& state = State();
  const PJRT_Program& program = *args->program;
  state.modules.emplace_back(program.code, program.code_size);
  state.compile_options.emplace_back(args->compile_options,
                                     args->compile_options_size);
  const auto signature =
      replicant::testing::ParseSignature(state.modules.back());
  if (!signature ||
      std::string_view(program.format, program.format_size) != "mlir") {
    return Fail(PJRT_Error_Code_INVALID_ARGUMENT, "this is no module");
  }
  auto* loaded = Register(new PJRT_LoadedExecutable(), "executable");
  loaded->executable.signature = *signature;
  for (const FakeType& type : signature->results) {
    loaded->executable.types.push_back(type.type);
    loaded->executable.dims.insert(loaded->executable.dims.end(),
                                   type.dims.begin(), type.dims.end());
    loaded->executable.ranks.push_back(type.dims.size());
  }
  args->executable = loaded;
  return nullptr;
}

// --- executables ---

PJRT_Error* LoadedDestroy(PJRT_LoadedExecutable_Destroy_Args* args) {
  return Destroy(args->executable,
                 Begin("PJRT_LoadedExecutable_Destroy", args->struct_size,
                       PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE));
}

PJRT_Error* LoadedGetExecutable(
    PJRT_LoadedExecutable_GetExecutable_Args* args) {
  BEGIN(PJRT_LoadedExecutable_GetExecutable);
  args->executable = Register(
      new PJRT_Executable(args->loaded_executable->executable), "description");
  return nullptr;
}

PJRT_Error* ExecutableDestroy(PJRT_Executable_Destroy_Args* args) {
  return Destroy(args->executable,
                 Begin("PJRT_Executable_Destroy", args->struct_size,
                       PJRT_Executable_Destroy_Args_STRUCT_SIZE));
}

PJRT_Error* ExecutableNumOutputs(PJRT_Executable_NumOutputs_Args* args) {
  BEGIN(PJRT_Executable_NumOutputs);
  args->num_outputs = args->executable->types.size();
  return nullptr;
}

PJRT_Error* ExecutableOutputTypes(
    PJRT_Executable_OutputElementTypes_Args* args) {
  BEGIN(PJRT_Executable_OutputElementTypes);
  args->output_types = args->executable->types.data();
  args->num_output_types = args->executable->types.size();
  return nullptr;
}

PJRT_Error* ExecutableOutputDimensions(
    PJRT_Executable_OutputDimensions_Args* args) {
  BEGIN(PJRT_Executable_OutputDimensions);
  args->num_outputs = args->executable->ranks.size();
  args->dims = args->executable->dims.data();
  args->dim_sizes = args->executable->ranks.data();
  return nullptr;
}

PJRT_Error* ExecutableMemory(
    PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  BEGIN(PJRT_Executable_GetCompiledMemoryStats);
  args->temp_size_in_bytes = 1000;
  return nullptr;
}

// The arguments of one device; those that the module consumes are given up.
// Adds what is wrong to the problems.
std::vector<FakeTensor> TakeArguments(const ModuleSignature& signature,
                                      PJRT_Buffer* const* buffers) {
  std::vector<FakeTensor> tensors;
  for (size_t i = 0; i < signature.arguments.size(); ++i) {
    PJRT_Buffer* const buffer = buffers[i];
    const std::string place = "argument " + std::to_string(i);
    if (!IsLive(buffer) || buffer->is_donated) {
      Refuse(place + " is no buffer any more");
      continue;
    }
    Do(buffer->upload);
    const FakeType& type = signature.arguments[i];
    if (buffer->tensor->type != type.type ||
        buffer->tensor->dims != type.dims) {
      Refuse(place + " has another type");
    }
    tensors.push_back(*buffer->tensor);
    buffer->is_donated = signature.aliased_results[i].has_value();
  }
  return tensors;
}

PJRT_Error* LoadedExecute(PJRT_LoadedExecutable_Execute_Args* args) {
  BEGIN(PJRT_LoadedExecutable_Execute);
  const ModuleSignature& signature = args->executable->executable.signature;
  if (args->options->struct_size < PJRT_ExecuteOptions_STRUCT_SIZE ||
      args->num_args != signature.arguments.size()) {
    return Refuse("Execute: other arguments than the module has");
  }
  for (size_t device = 0; device < args->num_devices; ++device) {
    const size_t num_problems = State().problems.size();
    const std::vector<FakeTensor> arguments =
        TakeArguments(signature, args->argument_lists[device]);
    if (State().problems.size() > num_problems) {
      return Fail(PJRT_Error_Code_INVALID_ARGUMENT, State().problems.back());
    }
    std::vector<FakeTensor> outputs;
    for (const FakeType& type : signature.results) {
      outputs.push_back({.type = type.type,
                         .dims = type.dims,
                         .bytes = std::vector<std::byte>(SizeInBytes(type))});
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::optional<size_t> result = signature.aliased_results[i];
      if (result) outputs[*result] = arguments[i];
    }
    if (State().run) State().run(device, arguments, outputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      auto* buffer = Register(new PJRT_Buffer(), "buffer");
      *buffer->tensor = std::move(outputs[i]);
      args->output_lists[device][i] = buffer;
    }
    if (args->device_complete_events != nullptr) {
      args->device_complete_events[device] = MakeEvent({});
    }
  }
  return nullptr;
}

// --- buffers ---

PJRT_Error* BufferDestroy(PJRT_Buffer_Destroy_Args* args) {
  return Destroy(args->buffer, Begin("PJRT_Buffer_Destroy", args->struct_size,
                                     PJRT_Buffer_Destroy_Args_STRUCT_SIZE));
}

PJRT_Error* BufferToHostBuffer(PJRT_Buffer_ToHostBuffer_Args* args) {
  BEGIN(PJRT_Buffer_ToHostBuffer);
  if (args->src->is_donated) return Refuse("a copy of a donated buffer");
  Do(args->src->upload);
  const FakeTensor& tensor = *args->src->tensor;
  if (args->dst_size < tensor.bytes.size()) return Refuse("a small copy");
  args->event = MakeEvent([bytes = tensor.bytes, to = args->dst] {
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  });
  return nullptr;
}

PJRT_Api MakeApi() {
  PJRT_Api api{};
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  api.PJRT_Error_Destroy = &ErrorDestroy;
  api.PJRT_Error_Message = &ErrorMessage;
  api.PJRT_Error_GetCode = &ErrorGetCode;
  api.PJRT_Plugin_Initialize = &PluginInitialize;
  api.PJRT_Plugin_Attributes = &PluginAttributes;
  api.PJRT_Event_Destroy = &EventDestroy;
  api.PJRT_Event_Await = &EventAwait;
  api.PJRT_Client_Create = &ClientCreate;
  api.PJRT_Client_Destroy = &ClientDestroy;
  api.PJRT_Client_PlatformName = &ClientPlatformName;
  api.PJRT_Client_PlatformVersion = &ClientPlatformVersion;
  api.PJRT_Client_AddressableDevices = &ClientAddressableDevices;
  api.PJRT_Client_Compile = &ClientCompile;
  api.PJRT_Client_BufferFromHostBuffer = &ClientBufferFromHostBuffer;
  api.PJRT_DeviceDescription_Id = &DescriptionId;
  api.PJRT_DeviceDescription_Kind = &DescriptionKind;
  api.PJRT_Device_GetDescription = &DeviceGetDescription;
  api.PJRT_Executable_Destroy = &ExecutableDestroy;
  api.PJRT_Executable_NumOutputs = &ExecutableNumOutputs;
  api.PJRT_Executable_OutputElementTypes = &ExecutableOutputTypes;
  api.PJRT_Executable_OutputDimensions = &ExecutableOutputDimensions;
  api.PJRT_Executable_GetCompiledMemoryStats = &ExecutableMemory;
  api.PJRT_LoadedExecutable_Destroy = &LoadedDestroy;
  api.PJRT_LoadedExecutable_GetExecutable = &LoadedGetExecutable;
  api.PJRT_LoadedExecutable_Execute = &LoadedExecute;
  api.PJRT_Buffer_Destroy = &BufferDestroy;
  api.PJRT_Buffer_ToHostBuffer = &BufferToHostBuffer;
  return api;
}

}  // namespace

extern "C" {

FakePjrt* GetFakePjrt() {
  static const bool is_ready = [] {
    State().api = MakeApi();
    return true;
  }();
  return is_ready ? &State() : nullptr;
}

const PJRT_Api* GetPjrtApi() { return &GetFakePjrt()->api; }

}  // extern "C"
