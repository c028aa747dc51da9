#pragma once

#include "base/tensor/tensor_view.h"
#include "engine/pjrt/handle.h"

struct PJRT_Buffer;
struct PJRT_Event;

namespace replicant::pjrt {

template <>
void Destroyer<PJRT_Event>::operator()(PJRT_Event* event) const;
template <>
void Destroyer<PJRT_Buffer>::operator()(PJRT_Buffer* buffer) const;

// The completion of a device's work: a transfer or an execution.
//
// Its destructor waits, so that host memory may be freed after it, whatever
// else has failed.
//
// Thread-safety: one thread at a time.
class Event {
 public:
  // A completed event.
  Event() = default;
  // `function` started the work; messages name it.
  Event(const Plugin& plugin, PJRT_Event* event, const char* function)
      : event_(event, {&plugin}), function_(function) {}
  Event(Event&&) = default;
  // Waits for the previous event first.
  Event& operator=(Event&& other) noexcept;
  ~Event();

  // Blocks until it is complete. Throws DeviceError, once, if it has failed.
  void Await();

 private:
  Handle<PJRT_Event> event_;
  const char* function_ = nullptr;
};

// A tensor in the memory of a device. Its value may still be in progress; every
// use waits for it.
//
// Thread-safety: const methods may run concurrently.
class Buffer {
 public:
  // No buffer.
  Buffer() = default;
  Buffer(const Plugin& plugin, PJRT_Buffer* buffer)
      : buffer_(buffer, {&plugin}) {}

  bool is_valid() const { return buffer_ != nullptr; }

  // Begins a copy of the value, row-major, into `host`, which has its type and
  // must not be touched until the event. Throws DeviceError.
  [[nodiscard]] Event CopyToHost(MutableTensorView host) const;

  PJRT_Buffer* handle() const { return buffer_.get(); }

 private:
  Handle<PJRT_Buffer> buffer_;
};

}  // namespace replicant::pjrt
