# cmake -P: what gpulift_architectures_of() makes of nvidia-smi's list.
include(${CMAKE_CURRENT_LIST_DIR}/gpulift_architectures.cmake)

function(expect capabilities expected)
  string(CONCAT offered "compute_75\ncompute_80\ncompute_86\ncompute_90\ncompute_100\ncompute_120\n")
  gpulift_architectures_of("${capabilities}" "${offered}" got)
  if(NOT "${got}" STREQUAL "${expected}")
    message(SEND_ERROR "'${capabilities}' gives '${got}', not '${expected}'")
  endif()
endfunction()

expect("9.0" "90a-real")
expect("8.0\n8.0\n" "80-real")
expect("12.0\n7.5\n9.0\n12.0" "75-real;90a-real;120a-real")
expect("6.1\n8.6" "86-real")
expect("1.0\n99.0" "")
expect("[N/A]\n8.0" "80-real")
expect("" "")
