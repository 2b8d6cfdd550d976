# Target helpers: one static library and one test program per folder.

add_library(nibble_options INTERFACE)
target_include_directories(nibble_options
                           INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(
  nibble_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                           -Wno-sign-conversion -ffp-contract=off)
target_compile_definitions(nibble_options
                           INTERFACE NIBBLE_VERSION="${PROJECT_VERSION}")
option(NIBBLE_WERROR "Treat warnings as errors" OFF)
if(NIBBLE_WERROR)
  target_compile_options(nibble_options INTERFACE -Werror)
endif()
set(NIBBLE_SANITIZE "" CACHE STRING "Sanitizers, for instance address,undefined")
if(NIBBLE_SANITIZE)
  target_compile_options(nibble_options
    INTERFACE -fsanitize=${NIBBLE_SANITIZE} -fno-omit-frame-pointer
              -fno-sanitize-recover=all -DNIBBLE_CHECKED=1)
  target_link_options(nibble_options INTERFACE -fsanitize=${NIBBLE_SANITIZE})
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(nibble_options INTERFACE NIBBLE_CHECKED=1)
endif()
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# nibble_library(NAME SOURCES a.cc ... [DEPS t ...] [TESTS a_test.cc ...]
#                [TEST_DEPS t ...])
# makes nibble_NAME (alias nibble::NAME) and, with tests on, nibble_NAME_test.
function(nibble_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;TESTS;TEST_DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(nibble_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(nibble_${name} PUBLIC nibble_options ${ARG_DEPS})
  else() # headers only
    add_library(nibble_${name} INTERFACE)
    target_link_libraries(nibble_${name} INTERFACE nibble_options ${ARG_DEPS})
  endif()
  add_library(nibble::${name} ALIAS nibble_${name})
  if(NIBBLE_TESTS AND ARG_TESTS)
    nibble_test(${name} SOURCES ${ARG_TESTS} DEPS nibble_${name}
                ${ARG_TEST_DEPS})
  endif()
endfunction()

# nibble_test(NAME SOURCES ... DEPS ...) makes nibble_NAME_test for ctest.
# Tests may read NIBBLE_SOURCE_DIR (bundled models) and look for the optional
# reference data of developers in NIBBLE_REFERENCE_DATA.
function(nibble_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(nibble_${name}_test ${ARG_SOURCES})
  target_link_libraries(nibble_${name}_test PRIVATE ${ARG_DEPS} nibble_options
                        GTest::gmock GTest::gtest_main)
  # For "reference_data.h".
  target_include_directories(nibble_${name}_test
                             PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(
    nibble_${name}_test PRIVATE NIBBLE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(nibble_${name}_test DISCOVERY_MODE PRE_TEST
                       DISCOVERY_TIMEOUT 60
                       TEST_PREFIX "${name}."
                       PROPERTIES TIMEOUT 600 LABELS "${ARG_LABELS}")
endfunction()
