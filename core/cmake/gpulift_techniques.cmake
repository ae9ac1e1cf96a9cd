# gpulift_add_techniques(<theme> [NEEDS cuda torch ...] [LIBRARIES targets...])
#
# Makes every <name>.cpp of the folder a technique with the id <theme>/<name>: a shared module, its manifest, the shared
# contract tests, and <name>_test.cpp if it is there. A new file is found by the next build. Where something in NEEDS is
# missing, each technique gets a manifest that says so instead. <name>.py, which makes the technique's Python arms, is
# copied beside the module, so that every build has its own.
function(gpulift_add_techniques theme)
  cmake_parse_arguments(arg "" "" "NEEDS;LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    set(missing "")
    gpulift_technique_needs(${source} "${arg_NEEDS}" needs)
    foreach(need IN LISTS needs)
      string(TOUPPER ${need} upper)
      if(NOT GPULIFT_HAS_${upper})
        set(missing ${need})
      endif()
    endforeach()
    if(missing)
      gpulift_write_missing_manifest(${theme} ${name} ${missing})
    else()
      gpulift_add_technique(${theme} ${name} ${source} "${needs}" "${arg_LIBRARIES}")
    endif()
  endforeach()
endfunction()

# What a technique needs: what its folder needs, and "cuda" unless the file says `.needs_device = false`.
function(gpulift_technique_needs source folder_needs result)
  file(STRINGS ${source} host_only REGEX "\\.needs_device = false")
  set(needs ${folder_needs})
  if(NOT host_only)
    list(PREPEND needs cuda)
  endif()
  set(${result} ${needs} PARENT_SCOPE)
endfunction()

function(gpulift_write_missing_manifest theme name need)
  set(titles_cuda "CUDA")
  set(titles_torch "LibTorch")
  file(WRITE ${CMAKE_BINARY_DIR}/modules/${theme}.${name}.json
       "{\"id\": \"${theme}/${name}\", \"unavailable\": \"built without ${titles_${need}}\", \"remedy\": \"./gpulift setup installs it, unless it is switched off\"}\n")
  file(REMOVE ${CMAKE_BINARY_DIR}/modules/${theme}.${name}.so)
endfunction()

# One technique. FOLDER below the build folder takes the module (default: modules), BUILD tells apart the targets of two
# builds of one technique, DEFINITIONS are compile definitions of this build.
function(gpulift_add_technique theme name source needs libraries)
  cmake_parse_arguments(PARSE_ARGV 5 arg "" "FOLDER;BUILD" "DEFINITIONS")
  set(folder ${CMAKE_BINARY_DIR}/modules)
  if(arg_FOLDER)
    set(folder ${CMAKE_BINARY_DIR}/${arg_FOLDER})
  endif()
  set(output ${theme}.${name})
  set(target ${output}${arg_BUILD})
  set(technique_id ${theme}/${name})
  set(entry ${CMAKE_CURRENT_BINARY_DIR}/${name}_entry.cpp)
  configure_file(${CMAKE_SOURCE_DIR}/core/cmake/module_entry.cpp.in ${entry} @ONLY)
  set(links gpulift::options gpulift::technique gpulift::host_workloads ${libraries})
  if("cuda" IN_LIST needs)
    list(APPEND links gpulift::workloads)
  endif()
  if("torch" IN_LIST needs)
    list(APPEND links gpulift::torch)
  endif()

  add_library(object.${target} OBJECT ${source} ${entry})
  target_link_libraries(object.${target} PRIVATE ${links})
  target_compile_definitions(object.${target} PRIVATE ${arg_DEFINITIONS})
  add_library(module.${target} MODULE)
  target_link_libraries(module.${target} PRIVATE object.${target} ${links})
  set_target_properties(module.${target} PROPERTIES
    OUTPUT_NAME ${output} PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${folder})
  set(manifest ${folder}/${output}.json)
  add_custom_command(OUTPUT ${manifest}.stamp
    COMMAND gpulift-bench --write-manifest $<TARGET_FILE:module.${target}> ${manifest}
    COMMAND ${CMAKE_COMMAND} -E touch ${manifest}.stamp
    DEPENDS module.${target} gpulift-bench VERBATIM)
  add_custom_target(manifest.${target} ALL DEPENDS ${manifest}.stamp)

  file(GLOB script CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}.py)
  if(script)
    configure_file(${script} ${folder}/${output}.py COPYONLY)
    configure_file(${CMAKE_SOURCE_DIR}/core/python/gpulift_worker.py ${folder}/gpulift_worker.py COPYONLY)
  endif()

  set(test_source ${CMAKE_CURRENT_SOURCE_DIR}/${name}_test.cpp)
  if(EXISTS ${test_source})
    set(gpu "")
    if("cuda" IN_LIST needs)
      set(gpu GPU)
    endif()
    gpulift_add_test(test.${target} ${gpu} SOURCES ${test_source} LIBRARIES object.${target} ${links})
  elseif(NOT theme STREQUAL "testing")
    message(FATAL_ERROR "${source} has no test: write ${name}_test.cpp beside it")
  endif()
endfunction()
