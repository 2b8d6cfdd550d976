# What `cmake --install` and `cpack` put where: the program, what shells and
# man need of it, the recipes to start from and the guide.
include(GNUInstallDirs)

# The program's own words, so that they cannot differ from it.
set(generated ${PROJECT_BINARY_DIR}/share)
function(nibble_says file)
  add_custom_command(
    OUTPUT ${generated}/${file}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}
    COMMAND nibble ${ARGN} > ${generated}/${file}
    DEPENDS nibble
    VERBATIM)
  set_property(GLOBAL APPEND PROPERTY nibble_said ${generated}/${file})
endfunction()
nibble_says(nibble.1 manual)
nibble_says(nibble.bash completions bash)
nibble_says(_nibble completions zsh)
nibble_says(nibble.fish completions fish)
get_property(said GLOBAL PROPERTY nibble_said)
add_custom_target(nibble_share ALL DEPENDS ${said})

install(FILES ${generated}/nibble.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${generated}/nibble.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME nibble)
install(FILES ${generated}/_nibble
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${generated}/nibble.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/nibble)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md CHANGELOG.md NOTICE
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

# `cpack --config build/CPackConfig.cmake -B DIR` makes nibble_VERSION_ARCH.deb.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME nibble)
set(CPACK_PACKAGE_CONTACT "the nibble authors <nibble@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
    "quantize large language models, run them, and prove the result")
set(CPACK_PACKAGE_DESCRIPTION
    "Quantizes checkpoints of the Llama family to INT4, INT8 and FP8 in bounded
memory, into the layouts that serving engines load; runs source and result on
CPUs; measures what was lost.")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
include(CPack)
