"""Short programs to copy from. The folder is a package because Opacus installs one of that name, which would hide it."""
