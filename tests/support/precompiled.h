#pragma once

// Precompiled for all tests, with base/precompiled.h
// (cmake/ReplicantTargets.cmake). A test still includes what it uses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
