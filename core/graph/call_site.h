#pragma once

#include <string>

namespace replicant::graph {

// The place in the source that added a node, for messages.
//
// Every function that adds an op takes one as its last argument, defaulted to
// Here(), which is then the place of the caller. A layer function passes its
// own argument on, so that a message names the user's line.
struct CallSite {
  // `file` must outlive the graph; a string literal does.
  static constexpr CallSite Here(const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
    return {file, line};
  }

  // "networks.cc:41", the path as the compiler was given it.
  std::string ToString() const;

  const char* file = "";
  int line = 0;
};

}  // namespace replicant::graph
