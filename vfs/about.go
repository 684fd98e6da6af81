package vfs

// About explains to a model what the file tools are for.
const About = `File tools (ls, read_file, write_file, edit_file, glob, grep, rm) need no program and are the fastest way to read and change files.`
