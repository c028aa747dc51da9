#pragma once

#include <stdexcept>
#include <string>

namespace replicant {

// The exceptions of Replicant: bad input, configuration, file, device or peer.
//
// A message says where (file:line, or host, pid, rank, device), what was given,
// what is allowed and, if known, the next step ("hint: ..."). A bug is not an
// exception but a REPLICANT_CHECK (base/check.h); an expected outcome
// (timeout, closed, queue full) is a returned value.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An argument outside what the function allows.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// Tensors whose shapes or element types do not fit together.
class ShapeError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// A configuration file or a command line that cannot be used.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// A file, folder or stream that cannot be read or written, or whose contents
// break its format.
class IoError : public Error {
 public:
  using Error::Error;

  // "<what>: <path>: <text of errno>".
  static IoError FromErrno(const std::string& what, const std::string& path,
                           int error_number);
};

// A compute device that is missing or failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// A peer process or message that broke the protocol, or a connection that
// cannot be made.
class CommError : public Error {
 public:
  using Error::Error;
};

}  // namespace replicant
