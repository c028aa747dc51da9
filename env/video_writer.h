#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/fs.h"
#include "base/process.h"

namespace replicant::env {

// Writes frames into a video file (H.264 in MP4, or the format of the file's
// extension) through a pipe to the program ffmpeg.
//
// Thread-safety: one thread at a time.
class VideoWriter {
 public:
  // Kills ffmpeg if it takes no frame for `patience`, or takes that long to
  // end. Throws IoError with a hint if ffmpeg cannot be started, and
  // InvalidArgument unless both sides and the rate are > 0.
  VideoWriter(std::filesystem::path file, int height, int width,
              double frames_per_second,
              std::chrono::milliseconds patience = std::chrono::minutes(1));
  // Ends ffmpeg; the file is complete only after Finish().
  ~VideoWriter();
  VideoWriter(const VideoWriter&) = delete;
  VideoWriter& operator=(const VideoWriter&) = delete;

  int height() const { return height_; }
  int width() const { return width_; }

  // Adds a frame: uint8 [height, width, 3], row 0 on top. Throws IoError with
  // ffmpeg's message if ffmpeg has failed, InvalidArgument for a wrong size.
  void Write(std::span<const uint8_t> rgb);

  // Waits until the file is complete. Throws IoError with ffmpeg's message if
  // it could not be written. No frame may follow.
  void Finish();

 private:
  // Waits for ffmpeg; throws unless it succeeded.
  void WaitForEnd();
  // Kills ffmpeg; throws IoError with the operation that timed out.
  [[noreturn]] void GiveUp(const char* what);

  std::filesystem::path file_;
  const int height_, width_;
  const std::chrono::milliseconds patience_;
  size_t frame_bytes_;
  // ffmpeg's stderr
  TemporaryFolder messages_;
  int pipe_ = -1;
  std::unique_ptr<Process> process_;
};

}  // namespace replicant::env
