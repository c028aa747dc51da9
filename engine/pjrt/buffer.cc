#include "engine/pjrt/buffer.h"

#include <array>
#include <utility>

#include "engine/pjrt/call.h"

namespace replicant::pjrt {

template <>
void Destroyer<PJRT_Event>::operator()(PJRT_Event* event) const {
  PJRT_Event_Destroy_Args args{};
  args.event = event;
  PJRT_CALL_NOTHROW(*plugin, PJRT_Event_Destroy, args);
}

template <>
void Destroyer<PJRT_Buffer>::operator()(PJRT_Buffer* buffer) const {
  PJRT_Buffer_Destroy_Args args{};
  args.buffer = buffer;
  PJRT_CALL_NOTHROW(*plugin, PJRT_Buffer_Destroy, args);
}

Event& Event::operator=(Event&& other) noexcept {
  const Event previous = std::move(*this);
  event_ = std::move(other.event_);
  function_ = other.function_;
  return *this;
}

Event::~Event() {
  try {
    Await();
  } catch (const DeviceError& error) {
    spdlog::warn("{}", error.what());
  }
}

void Event::Await() {
  if (event_ == nullptr) return;
  // it is complete, even if it has failed
  const Handle<PJRT_Event> event = std::move(event_);
  const Plugin& plugin = *event.get_deleter().plugin;
  PJRT_Event_Await_Args args{};
  args.struct_size = PJRT_Event_Await_Args_STRUCT_SIZE;
  args.event = event.get();
  plugin.Check(plugin.api().PJRT_Event_Await(&args), function_);
}

Event Buffer::CopyToHost(MutableTensorView host) const {
  const Plugin& plugin = *buffer_.get_deleter().plugin;
  // row-major: the last dimension is the most minor one
  std::array<int64_t, Shape::kMaxRank> minor_to_major{};
  const int rank = host.shape().rank();
  for (int i = 0; i < rank; ++i) {
    minor_to_major[static_cast<size_t>(i)] = rank - 1 - i;
  }
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = static_cast<size_t>(rank);

  PJRT_Buffer_ToHostBuffer_Args args{};
  args.src = buffer_.get();
  args.host_layout = &layout;
  args.dst = host.data();
  args.dst_size = host.size_bytes();
  PJRT_CALL(plugin, PJRT_Buffer_ToHostBuffer, args);
  return {plugin, args.event, "PJRT_Buffer_ToHostBuffer"};
}

}  // namespace replicant::pjrt
