"""Scripts that measure. The folder is a package because Opacus installs one of the same name, which would hide it."""
