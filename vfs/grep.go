package vfs
import "github.com/wisbox/wisbox/tool"
func (f *FS) grepTool() tool.Tool { return tool.New(tool.Spec{Name:"grep"}, f.ls) }
