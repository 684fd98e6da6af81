package vfs

import "github.com/wisbox/wisbox/tool"

// Tools are ls, read_file, write_file, edit_file, glob, grep and rm.
func (f *FS) Tools() []tool.Tool {
	return []tool.Tool{f.lsTool(), f.readTool(), f.writeTool(), f.editTool(), f.globTool(), f.grepTool(), f.rmTool()}
}

// CompatTools are list_directory and delete_file: ls and rm under the names that
// older agents know.
func (f *FS) CompatTools() []tool.Tool {
	return []tool.Tool{f.lsTool().Renamed("list_directory"), f.rmTool().Renamed("delete_file")}
}
