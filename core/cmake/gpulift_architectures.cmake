# The architectures of cards: `capabilities` holds a card's compute capability a line, as nvidia-smi lists them; `offered`
# holds those that the compiler knows, as nvcc --list-gpu-arch lists them. E.g. 80-real;90a-real; empty where none is
# known. "a" targets unlock the matrix instructions of architectures from 9.0 on and run on exactly that architecture.
function(gpulift_architectures_of capabilities offered result)
  string(REGEX MATCHALL "[^\r\n]+" lines "${capabilities}")
  set(architectures "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^ *([0-9]+)\\.([0-9]) *$")
      set(architecture "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
      # A card that the compiler does not know must not break the build for the others.
      if("${offered}" MATCHES "compute_${architecture}([^0-9]|$)")
        if(architecture GREATER_EQUAL 90)
          string(APPEND architecture "a")
        endif()
        list(APPEND architectures "${architecture}-real")
      endif()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES architectures)
  list(SORT architectures COMPARE NATURAL)
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()
