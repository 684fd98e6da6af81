package vfs

import "github.com/wisbox/wisbox/tool"

// Tools are ls, read_file, write_file, edit_file, glob, grep and rm, and move_file, which is hidden.
func (f *FS) Tools() []tool.Tool {
	return []tool.Tool{f.lsTool(), f.readTool(), f.writeTool(), f.editTool(), f.globTool(), f.grepTool(), f.rmTool(), f.moveTool()}
}
