package filewire

// Operations.
const (
	Stat   = "stat"
	List   = "list"
	Read   = "read"
	Write  = "write"
	Move   = "move"
	Remove = "remove"
	Mkdir  = "mkdir"
	Chmod  = "chmod"
	Watch  = "watch"
)

// Ways to write.
const (
	Replace = "replace"
	InPlace = "in_place"
	Append  = "append"
	Several = "several" // files of the content, which has their paths: all or none
)

// Ask is an operation. Paths are absolute, of any bytes but NUL.
type Ask struct {
	Do        string            `json:"do"`
	Path      []byte            `json:"path"`
	To        []byte            `json:"to,omitempty"`        // move
	How       string            `json:"how,omitempty"`       // write
	Follow    bool              `json:"follow,omitempty"`    // stat: what a link leads to
	Attrs     bool              `json:"attrs,omitempty"`     // stat, list: with extended attributes
	Parents   bool              `json:"parents,omitempty"`   // write, move, mkdir: make missing directories
	Exclusive bool              `json:"exclusive,omitempty"` // write, move: the target must not exist
	Any       bool              `json:"any,omitempty"`       // read: not only regular files
	Recursive bool              `json:"recursive,omitempty"` // remove, watch
	Mode      uint32            `json:"mode,omitempty"`      // write, mkdir, chmod: permissions
	Offset    int64             `json:"offset,omitempty"`    // read
	Length    int64             `json:"length,omitempty"`    // read; 0 is all
	Depth     int               `json:"depth,omitempty"`     // list
	Limit     int               `json:"limit,omitempty"`     // list: items; remove: steps; watch: directories
	Set       map[string][]byte `json:"set,omitempty"`       // write: extended attributes
}

// Item is one file.
type Item struct {
	Name     []byte            `json:"name,omitempty"` // list: relative to the directory
	Mode     uint32            `json:"mode"`           // type and permissions as the kernel has them
	UID      uint32            `json:"uid"`
	GID      uint32            `json:"gid"`
	Size     int64             `json:"size"`
	Seconds  int64             `json:"sec"` // of the last change of the content
	Nanos    int64             `json:"nsec"`
	Link     []byte            `json:"link,omitempty"`      // what a symbolic link says
	Real     []byte            `json:"real,omitempty"`      // the file that it leads to, absolute; none where it leads nowhere
	RealMode uint32            `json:"real_mode,omitempty"` // of that file
	Attrs    map[string][]byte `json:"attrs,omitempty"`     // extended attributes of users, as far as they fit
}

// Kinds of changes.
const (
	Created     = "created"
	Written     = "written"
	Removed     = "removed"
	Renamed     = "renamed" // away; the new name is created
	ModeChanged = "mode"    // or owner, times, attributes
	Lost        = "lost"    // changes were lost: there were too many at once
)

// Event is one change below a watched directory.
type Event struct {
	Kind string `json:"kind"`
	Name []byte `json:"name,omitempty"` // relative; none is the directory itself, or what was lost
	Dir  bool   `json:"dir,omitempty"`
}

// Reasons that are no error number.
const (
	Irregular = "irregular" // not a regular file
	Limited   = "limited"   // Ask.Limit, or another bound, was reached
	Stopped   = "stopped"   // as asked for
)

// Ended is how an operation ended: well, if neither Errno nor Why is set.
type Ended struct {
	Errno int    `json:"errno,omitempty"`
	Why   string `json:"why,omitempty"`
	At    []byte `json:"at,omitempty"` // below the path, where it happened elsewhere
}

// TempPrefix begins the names of files that are being written beside their target.
const TempPrefix = ".wisbox-"

// MaxPath is the size of a path, in bytes.
const MaxPath = 4096
