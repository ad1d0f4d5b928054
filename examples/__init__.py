"""Programs to copy from. The folder is a package because Opacus installs one of the same name, which would hide it."""
