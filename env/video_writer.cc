#include "env/video_writer.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "base/error.h"

namespace replicant::env {
namespace {

std::vector<std::string> Command(const std::filesystem::path& file, int height,
                                 int width, double frames_per_second) {
  return {"ffmpeg", "-hide_banner", "-loglevel", "error", "-nostdin", "-y",
          // format of the frames on the pipe
          "-f", "rawvideo", "-pixel_format", "rgb24", "-video_size",
          fmt::format("{}x{}", width, height), "-framerate",
          fmt::format("{}", frames_per_second), "-i", "pipe:0",
          // players need even sides and colours at half resolution
          "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p",
          // a name with a colon or a dash is a file as well
          "file:" + file.string()};
}

}  // namespace

VideoWriter::VideoWriter(std::filesystem::path file, int height, int width,
                         double frames_per_second,
                         std::chrono::milliseconds patience)
    : file_(std::move(file)),
      height_(height),
      width_(width),
      patience_(patience),
      frame_bytes_(0),
      messages_("replicant-video") {
  if (height < 1 || width < 1 || !(frames_per_second > 0.0)) {
    throw InvalidArgument(
        fmt::format("video {}: {} x {} pixels at {} frames per second given; "
                    "all must be > 0",
                    file_.string(), height, width, frames_per_second));
  }
  frame_bytes_ =
      size_t{3} * static_cast<size_t>(height) * static_cast<size_t>(width);

  // a socket, unlike a pipe, can be written to without SIGPIPE
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw IoError::FromErrno("socketpair", file_.string(), errno);
  }
  pipe_ = ends[0];
  const timeval timeout = {.tv_sec = patience.count() / 1000,
                           .tv_usec = patience.count() % 1000 * 1000};
  ::setsockopt(pipe_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  const std::filesystem::path messages = messages_.path() / "messages";
  try {
    process_ = std::make_unique<Process>(ProcessOptions{
        .command = Command(file_, height, width, frames_per_second),
        .stdin_fd = ends[1],
        .stdout_file = messages,
        .stderr_file = messages});
  } catch (const IoError& e) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw IoError(fmt::format(
        "video {}: {}; hint: install the program ffmpeg, which writes videos",
        file_.string(), e.what()));
  }
  ::close(ends[1]);
}

VideoWriter::~VideoWriter() {
  if (pipe_ >= 0) ::close(pipe_);
}

void VideoWriter::Write(std::span<const uint8_t> rgb) {
  if (rgb.size() != frame_bytes_) {
    throw InvalidArgument(
        fmt::format("video {}: frame has {} bytes, expected {}", file_.string(),
                    rgb.size(), frame_bytes_));
  }
  while (!rgb.empty()) {
    const ssize_t sent = ::send(pipe_, rgb.data(), rgb.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) GiveUp("has taken no frame");
    if (sent < 0) {
      WaitForEnd();
      throw IoError(fmt::format("video {}: ffmpeg ended before its input",
                                file_.string()));
    }
    rgb = rgb.subspan(static_cast<size_t>(sent));
  }
}

void VideoWriter::Finish() {
  ::close(std::exchange(pipe_, -1));
  WaitForEnd();
}

void VideoWriter::WaitForEnd() {
  const std::optional<ExitStatus> ended = process_->Wait(patience_);
  if (!ended) GiveUp("has not ended");
  const ExitStatus status = *ended;
  if (status.ok()) return;
  std::string words = ReadFile(messages_.path() / "messages");
  while (!words.empty() && words.back() == '\n') words.pop_back();
  throw IoError(fmt::format("video {}: ffmpeg ended with {}: {}",
                            file_.string(), status.ToString(), words));
}

void VideoWriter::GiveUp(const char* what) {
  process_->Signal(SIGKILL);
  throw IoError(fmt::format("video {}: ffmpeg {} for {:g} s and was killed",
                            file_.string(), what,
                            1e-3 * static_cast<double>(patience_.count())));
}

}  // namespace replicant::env
