package shelltool

// About explains to a model how programs are run.
const About = `shell_execute runs one command (commands, an argv) or a script (bash) to its end; nothing that it starts outlives the call.
process_start begins what has to run on: read it with process_read, end it with process_signal.`
