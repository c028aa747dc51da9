#pragma once

// Included at the head of every file (cmake/ReplicantTargets.cmake):
// spdlog 1.10 with fmt 9 would compile the formatting of all number types in
// each file that logs, 2.5 s per file. libfmt 9 already contains it.
#if __has_include(<fmt/core.h>)
#include <fmt/core.h>

#if FMT_VERSION / 10000 == 9 && !defined(FMT_HEADER_ONLY) && !defined(__clang__)
extern template void fmt::detail::vformat_to<char>(
    fmt::detail::buffer<char>&, fmt::string_view,
    fmt::basic_format_args<fmt::buffer_context<char>>, fmt::detail::locale_ref);
#endif
#endif
