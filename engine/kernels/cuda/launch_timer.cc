#include "engine/kernels/cuda/launch_timer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "engine/kernels/cuda/recorded_graph.h"

namespace replicant::kernels::cuda {
namespace {

// Launches in a sample: enough for the half microsecond to which events
// resolve time.
constexpr int kLaunches = 8;
constexpr size_t kSamples = 5;
// A candidate is given up if its first sample takes over this many times the
// best, and longer than bringing a graph to the device.
constexpr double kHopeless = 4.0;
constexpr double kUploadUs = 1000.0;

}  // namespace

LaunchTimer::LaunchTimer(std::shared_ptr<const Device> device)
    : device_(std::move(device)), stream_(CreateStreamOn(device_)) {
  try {
    for (CUevent* event : {&start_, &end_}) {
      device_->Check(device_->driver().EventCreate(event, CU_EVENT_DEFAULT),
                     "cuEventCreate");
    }
  } catch (...) {
    Destroy();
    throw;
  }
}

LaunchTimer::~LaunchTimer() { Destroy(); }

void LaunchTimer::Destroy() {
  for (CUevent event : {start_, end_}) {
    if (event != nullptr) device_->driver_for_cleanup().EventDestroy(event);
  }
}

std::optional<double> LaunchTimer::MedianUs(const LaunchFunction& launch,
                                            double best_us, std::string* why) {
  CUstream const stream = HandleOf(*stream_);
  std::unique_ptr<Recording> recording;
  try {
    // libraries load code and memory at their first call
    launch(stream);
    stream_->Synchronize();
    recording = RecordOn(device_, *stream_, [&] {
      for (int i = 0; i < kLaunches; ++i) launch(stream);
    });
  } catch (const DeviceError& e) {
    // throws if the device itself failed, which is permanent
    stream_->Synchronize();
    *why = e.what();
    return std::nullopt;
  }
  // the first launch of a graph brings it to the device
  const double first_us = SampleUs(*recording);
  if (first_us > kHopeless * best_us * kLaunches + kUploadUs) {
    return first_us / kLaunches;
  }
  std::array<double, kSamples> samples_us{};
  for (double& sample_us : samples_us) sample_us = SampleUs(*recording);
  std::ranges::sort(samples_us);
  return samples_us[kSamples / 2] / kLaunches;
}

double LaunchTimer::SampleUs(Recording& recording) {
  CUstream const stream = HandleOf(*stream_);
  Driver& driver = device_->driver();
  device_->Check(driver.EventRecord(start_, stream), "cuEventRecord");
  recording.Launch(*stream_);
  device_->Check(driver.EventRecord(end_, stream), "cuEventRecord");
  device_->Check(driver.EventSynchronize(end_), "cuEventSynchronize");
  float time_ms = 0.0F;
  device_->Check(driver.EventElapsedTime(&time_ms, start_, end_),
                 "cuEventElapsedTime");
  return 1e3 * static_cast<double>(time_ms);
}

}  // namespace replicant::kernels::cuda
