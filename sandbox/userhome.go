package sandbox

// Home is the HOME of programs without [Spec.UserHome]: a tmpfs of [Limits.Home] bytes. It is not below /tmp, where
// some programs refuse to install anything.
const Home = "/var/home/wisbox"

// UserHome is a second path of the workspace for programs, with [Spec.UserHome].
const UserHome = "/home/user"

// UserPasswd and UserGroup are /etc/passwd and /etc/group of a sandbox with [Spec.UserHome].
const (
	UserPasswd = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\nuser:x:1000:1000::" + UserHome + ":/bin/bash\n"
	UserGroup  = "root:x:0:\ntty:x:5:\nnogroup:x:65534:\nuser:x:1000:\n"
)

// UserEnv returns the variables of programs with [Spec.UserHome], which the spec's own replace.
func UserEnv() []string { return []string{"HOME=" + UserHome, "USER=user", "LOGNAME=user"} }
