# cmake -DWORK=... -P check_tree_test.cmake: check_tree.cmake passes a good small tree, and finds each
# kind of breach in it, with its place.
cmake_minimum_required(VERSION 3.22)

get_filename_component(checker ${CMAKE_CURRENT_LIST_DIR}/check_tree.cmake ABSOLUTE)

function(make_tree)
  file(REMOVE_RECURSE ${WORK})
  file(WRITE ${WORK}/src/base/error.h "#pragma once\n#include <string>\n")
  file(WRITE ${WORK}/src/weights/weights.h "#include \"base/error.h\"\n")
  file(WRITE ${WORK}/src/kernels/packed.h "// Blocks of rows. No MLX.\n#include \"weights/weights.h\"\n")
  file(WRITE ${WORK}/src/engine/engine.cpp "#include <mlx/array.h>\n#include \"kernels/packed.h\"\n")
endfunction()

function(run out_status out_text)
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${WORK} -P ${checker}
    RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(${out_status} ${status} PARENT_SCOPE)
  set(${out_text} "${text}" PARENT_SCOPE)
endfunction()

function(expect_breach file content expected)
  make_tree()
  file(WRITE ${WORK}/${file} "${content}")
  run(status text)
  string(FIND "${text}" "${expected}" at)
  if(status EQUAL 0 OR at EQUAL -1)
    message(FATAL_ERROR "${file}: wanted a breach '${expected}', got status ${status}:\n${text}")
  endif()
endfunction()

make_tree()
run(status text)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "a good tree was refused:\n${text}")
endif()

expect_breach(src/base/x.cpp "#include <string>\n#include \"weights/weights.h\"\n"
  "src/base/x.cpp:2: src/base may not include src/weights")
expect_breach(src/chat/x.cpp "  #  include \"engine/../weights/weights.h\"\n"
  "src/chat may not include src/")
expect_breach(src/tokenizer/x.cpp "#include <mlx/mlx.h>\n" "src/tokenizer/x.cpp:1: may not include MLX")
expect_breach(src/engine/scheduler.cpp "#include <mlx/array.h>\n" "may not include MLX")
expect_breach(src/kernels/packed.h "// Blocks. No MLX.\n#include <mlx/array.h>\n"
  "src/kernels/packed.h:2: may not include MLX")
expect_breach(src/models/x.cpp "#include <quince_bridge.h>\n" "may include the Rust bridge")
expect_breach(src/engine/x.cpp "#include <CLI/CLI.hpp>\n" "may include the command-line library")
expect_breach(src/unknown/x.cpp "int x;\n" "the folder unknown is not in the table")
string(REPEAT "int x;\n" 801 long)
expect_breach(src/base/long.cpp "${long}" "src/base/long.cpp: 801 lines")
