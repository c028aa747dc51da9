// Streams, events, captures and graphs of FakeDriver.
#include <fmt/format.h>

#include <utility>

#include "tests/support/fake_cuda/fake_driver.h"
#include "tests/support/fake_cuda/fake_driver_parts.h"

namespace replicant::testing {

bool FakeDriver::IsStream(const char* call, CUstream stream) {
  if (streams_.contains(NumberOf(stream))) return true;
  Problem(fmt::format("{}: not a stream", call));
  return false;
}

bool FakeDriver::IsEvent(const char* call, CUevent event) {
  if (events_.contains(NumberOf(event))) return true;
  Problem(fmt::format("{}: not an event", call));
  return false;
}

CUresult FakeDriver::StreamCreate(CUstream* stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuStreamCreate")) return *failure;
  streams_[next_handle_] = {};
  *stream = HandleOf<CUstream>(next_handle_++);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::StreamDestroy(CUstream stream) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuStreamDestroy");
  if (!IsStream("cuStreamDestroy", stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (CaptureOf(stream) != nullptr)
    Problem("cuStreamDestroy: within a capture");
  streams_.erase(NumberOf(stream));
  return failure.value_or(CUDA_SUCCESS);
}

CUresult FakeDriver::StreamSynchronize(CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuStreamSynchronize")) return *failure;
  if (!IsStream("cuStreamSynchronize", stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  HostClock().Join(streams_[NumberOf(stream)]);
  ReleaseHostMemory();
  return CUDA_SUCCESS;
}

CUresult FakeDriver::StreamWaitEvent(CUstream stream, CUevent event) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuStreamWaitEvent")) return *failure;
  if (!IsStream("cuStreamWaitEvent", stream) ||
      !IsEvent("cuStreamWaitEvent", event)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Capture* const capture = CaptureOf(stream);
  if (capture == nullptr && !captured_events_.contains(NumberOf(event))) {
    streams_[NumberOf(stream)].Join(events_[NumberOf(event)]);
    return CUDA_SUCCESS;
  }
  // an event of a capture takes the stream that waits for it into the capture
  for (auto& [origin, open] : captures_) {
    if (!open.events.contains(NumberOf(event)) ||
        (capture != nullptr && capture != &open)) {
      continue;
    }
    open.streams.insert(NumberOf(stream));
    open.graph.operations.push_back({.kind = GraphOperation::Kind::kWait,
                                     .stream = NumberOf(stream),
                                     .event = NumberOf(event)});
    return CUDA_SUCCESS;
  }
  if (capture != nullptr) capture->is_invalid = true;
  Problem("cuStreamWaitEvent: the event is not of the stream's capture");
  return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult FakeDriver::EventCreate(CUevent* event, unsigned flags) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuEventCreate")) return *failure;
  events_[next_handle_] = {};
  if (flags == CU_EVENT_DEFAULT) event_times_us_[next_handle_] = {};
  *event = HandleOf<CUevent>(next_handle_++);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::EventDestroy(CUevent event) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuEventDestroy");
  if (!IsEvent("cuEventDestroy", event)) return CUDA_ERROR_INVALID_HANDLE;
  events_.erase(NumberOf(event));
  event_times_us_.erase(NumberOf(event));
  captured_events_.erase(NumberOf(event));
  return failure.value_or(CUDA_SUCCESS);
}

CUresult FakeDriver::EventRecord(CUevent event, CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuEventRecord")) return *failure;
  if (!IsStream("cuEventRecord", stream) || !IsEvent("cuEventRecord", event)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (Capture* const capture = CaptureOf(stream)) {
    captured_events_.insert(NumberOf(event));
    capture->events.insert(NumberOf(event));
    capture->graph.operations.push_back({.kind = GraphOperation::Kind::kRecord,
                                         .stream = NumberOf(stream),
                                         .event = NumberOf(event)});
    return CUDA_SUCCESS;
  }
  captured_events_.erase(NumberOf(event));
  events_[NumberOf(event)] = streams_[NumberOf(stream)];
  if (const auto timed = event_times_us_.find(NumberOf(event));
      timed != event_times_us_.end()) {
    timed->second = stream_times_us_[NumberOf(stream)];
  }
  return CUDA_SUCCESS;
}

CUresult FakeDriver::EventElapsedTime(float* time_ms, CUevent start,
                                      CUevent end) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuEventElapsedTime")) return *failure;
  std::vector<double> times_us;
  for (CUevent event : {start, end}) {
    if (!IsEvent("cuEventElapsedTime", event)) return CUDA_ERROR_INVALID_HANDLE;
    const auto timed = event_times_us_.find(NumberOf(event));
    if (timed == event_times_us_.end() || !timed->second) {
      Problem("cuEventElapsedTime: an event without a time");
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!HostClock().Includes(events_[NumberOf(event)])) {
      Problem("cuEventElapsedTime: the host has not waited for the event");
      return CUDA_ERROR_NOT_READY;
    }
    times_us.push_back(*timed->second);
  }
  *time_ms = static_cast<float>(1e-3 * (times_us[1] - times_us[0]));
  return CUDA_SUCCESS;
}

CUresult FakeDriver::EventSynchronize(CUevent event) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuEventSynchronize")) return *failure;
  if (!IsEvent("cuEventSynchronize", event)) return CUDA_ERROR_INVALID_HANDLE;
  if (captured_events_.contains(NumberOf(event))) {
    Problem("cuEventSynchronize: an event of a capture");
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  HostClock().Join(events_[NumberOf(event)]);
  ReleaseHostMemory();
  return CUDA_SUCCESS;
}

Capture* FakeDriver::CaptureOf(CUstream stream) {
  for (auto& [origin, capture] : captures_) {
    if (capture.streams.contains(NumberOf(stream))) return &capture;
  }
  return nullptr;
}

bool FakeDriver::IsCaptured(CUstream stream) {
  const MutexLock lock(mutex_);
  return CaptureOf(stream) != nullptr;
}

Capture* FakeDriver::OwnCapture() {
  for (auto& [origin, capture] : captures_) {
    if (capture.thread == std::this_thread::get_id()) return &capture;
  }
  return nullptr;
}

CUresult FakeDriver::StreamBeginCapture(CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuStreamBeginCapture")) return *failure;
  if (!IsStream("cuStreamBeginCapture", stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (CaptureOf(stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const uintptr_t origin = NumberOf(stream);
  captures_[origin] = {.thread = std::this_thread::get_id(),
                       .graph = {.origin = origin, .operations = {}},
                       .streams = {origin},
                       .events = {}};
  return CUDA_SUCCESS;
}

CUresult FakeDriver::StreamEndCapture(CUstream stream, CUgraph* graph) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuStreamEndCapture");
  *graph = nullptr;
  const auto found = captures_.find(NumberOf(stream));
  if (found == captures_.end()) {
    Problem("cuStreamEndCapture: the stream is not captured");
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  if (found->second.thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  // a capture ends, whatever became of it
  const Capture capture = std::move(found->second);
  captures_.erase(found);
  if (failure) return *failure;
  if (capture.is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!IsJoined(capture.graph)) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  graphs_[next_handle_] = capture.graph;
  *graph = HandleOf<CUgraph>(next_handle_++);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::GraphDestroy(CUgraph graph) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuGraphDestroy");
  if (graphs_.erase(NumberOf(graph)) == 0) {
    Problem("cuGraphDestroy: not a graph");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return failure.value_or(CUDA_SUCCESS);
}

CUresult FakeDriver::GraphInstantiate(CUgraphExec* executable, CUgraph graph) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuGraphInstantiate")) return *failure;
  const auto found = graphs_.find(NumberOf(graph));
  if (found == graphs_.end()) {
    Problem("cuGraphInstantiate: not a graph");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  ExecutableGraph made{.graph = found->second, .numbers = {}, .clocks = {}};
  for (const GraphOperation& operation : made.graph.operations) {
    if (operation.stream != made.graph.origin &&
        !made.numbers.contains(operation.stream)) {
      made.numbers[operation.stream] = next_handle_++;
    }
  }
  executables_[next_handle_] = std::move(made);
  *executable = HandleOf<CUgraphExec>(next_handle_++);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::GraphExecDestroy(CUgraphExec executable) {
  const MutexLock lock(mutex_);
  const auto failure = Begin("cuGraphExecDestroy");
  if (executables_.erase(NumberOf(executable)) == 0) {
    Problem("cuGraphExecDestroy: not an executable graph");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return failure.value_or(CUDA_SUCCESS);
}

CUresult FakeDriver::GraphLaunch(CUgraphExec executable, CUstream stream) {
  const MutexLock lock(mutex_);
  if (const auto failure = Begin("cuGraphLaunch")) return *failure;
  const auto found = executables_.find(NumberOf(executable));
  if (found == executables_.end()) {
    Problem("cuGraphLaunch: not an executable graph");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!IsStream("cuGraphLaunch", stream)) return CUDA_ERROR_INVALID_HANDLE;
  ExecutableGraph& made = found->second;
  Clock& origin = streams_[NumberOf(stream)];
  origin.Join(HostClock());
  return WalkGraph(
      made.graph, &origin, &made.clocks,
      [&](const GraphOperation& operation, Clock* clock) REQUIRES(mutex_) {
        const uintptr_t number = operation.stream == made.graph.origin
                                     ? NumberOf(stream)
                                     : made.numbers.at(operation.stream);
        if (operation.kind == GraphOperation::Kind::kWork) {
          return Execute(operation.work, number, clock);
        }
        // other ranks' threads launch their graphs meanwhile
        mutex_.Unlock();
        const CUresult result =
            operation.meet({.number = number, .clock = clock});
        mutex_.Lock();
        return result;
      });
}

}  // namespace replicant::testing
