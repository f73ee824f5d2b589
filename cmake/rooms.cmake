# fathom_room(NAME [LINK room...] [EXTERNAL target...])
#
# One static library a room, from src/NAME/**.cc. A room is included as "NAME/file.h", and that path exists
# only for rooms that are linked: each room publishes a folder holding a single link to its sources.
# Files named *_test.cc become the test program NAME_test.
# A file src/NAME/<isa>/*.cc with <isa> one of avx2, avx512, amx, neon, neon_dot gets that instruction set's flags.
set(FATHOM_ISA_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(FATHOM_ISA_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512vbmi -mavx512bf16 -mfma -mf16c -mbmi2)
set(FATHOM_ISA_amx ${FATHOM_ISA_avx512} -mamx-tile -mamx-bf16)
# NEON is part of the architecture. Before registers are given out, g++'s scheduler moves so many loads ahead that
# the accumulators of a tile no longer fit.
set(FATHOM_ISA_neon "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(FATHOM_ISA_neon -fno-schedule-insns)
endif()
set(FATHOM_ISA_neon_dot ${FATHOM_ISA_neon} -march=armv8.2-a+dotprod)

# Undefined-behaviour checks and coverage make one kernel file take minutes to compile; the same loops are
# checked in their portable build.
set(FATHOM_ISA_UNCHECKED "")
if(FATHOM_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(FATHOM_ISA_UNCHECKED -fno-sanitize=undefined
      -fno-sanitize-coverage=inline-8bit-counters,indirect-calls,trace-cmp,pc-table)
endif()

function(fathom_room name)
  cmake_parse_arguments(ROOM "" "" "LINK;EXTERNAL" ${ARGN})
  set(root ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${root}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")

  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(FILTER sources EXCLUDE REGEX "/src/${name}/neon(_dot)?/")
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(FILTER sources EXCLUDE REGEX "/src/${name}/(avx2|avx512|amx)/")
  else()
    list(FILTER sources EXCLUDE REGEX "/src/${name}/(avx2|avx512|amx|neon|neon_dot)/")
  endif()
  foreach(isa avx2 avx512 amx neon neon_dot)
    set(isa_sources ${sources})
    list(FILTER isa_sources INCLUDE REGEX "/src/${name}/${isa}/")
    if(isa_sources)
      set_source_files_properties(${isa_sources} PROPERTIES COMPILE_OPTIONS "${FATHOM_ISA_${isa}};${FATHOM_ISA_UNCHECKED}")
    endif()
  endforeach()

  set(published ${CMAKE_BINARY_DIR}/rooms/${name})
  file(MAKE_DIRECTORY ${published})
  file(CREATE_LINK ${root} ${published}/${name} SYMBOLIC)
  if(NOT sources)
    set(empty ${CMAKE_BINARY_DIR}/rooms/${name}_empty.cc)
    file(WRITE ${empty} "")
    set(sources ${empty})
  endif()
  add_library(fathom_${name} STATIC ${sources})
  target_include_directories(fathom_${name} PUBLIC ${published})
  set(links ${ROOM_EXTERNAL})
  foreach(room ${ROOM_LINK})
    if(room MATCHES "::")
      list(APPEND links ${room})
    else()
      list(APPEND links fathom_${room})
    endif()
  endforeach()
  target_link_libraries(fathom_${name} PUBLIC ${links})
  if(name STREQUAL "capi")
    target_include_directories(fathom_capi PUBLIC ${CMAKE_SOURCE_DIR}/include)
  endif()

  if(FATHOM_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE fathom_${name} GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE FATHOM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
endfunction()
