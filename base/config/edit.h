#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/config/document.h"

// Values of a configuration outside its structs. A key is given as its dotted
// path: "task.mjcf".
namespace replicant::config {

// The text of the scalar that `document` holds for `key`, or of a list's values
// in YAML's flow style ("[a, b]"); std::nullopt if it holds neither.
std::optional<std::string> ValueOf(const Document& document,
                                   std::string_view key);

// Puts the place of a key in front of a problem with its value that was found
// after loading:
//
//   task.pixels.camera: no camera 'top'
//   run.yaml:3:18: task.pixels.camera: no camera 'top'
//
// Returns `message` unless it begins with a key, or the innermost section
// around one, that `document` holds.
std::string WithPlace(const Document& document, const std::string& message);

// Makes the path that `document` holds for `key` absolute: a relative one in a
// file is relative to that file's folder, one of the command line to the
// working folder. Does nothing if the key is absent, empty or not text.
void MakeAbsolute(Document& document, std::string_view key);

// Returns `resolved_yaml`, as Load() gives it, with the text or the number
// `value` for `key`, which it holds (checked).
std::string WithValue(const std::string& resolved_yaml, std::string_view key,
                      std::string_view value);
std::string WithValue(const std::string& resolved_yaml, std::string_view key,
                      int64_t value);

}  // namespace replicant::config
