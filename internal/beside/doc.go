// Package beside provides a sandbox that was created by others, next to this process: in a Pod,
// a container of programs beside the container of the session's holder. The two share the
// workspace, which programs see at [sandbox.WorkspaceDir], and a directory with the agent's
// socket, which only uid 0 can access. The agent is the first process of its container.
//
// [Become] starts that container, and [Backend] is the holder's side. There is one sandbox:
// Create claims it, Remove ends all its programs and empties /tmp, /dev/shm and the secrets, and
// the agent keeps running for the next Create. If the container ends and restarts, the sandbox
// is lost. A record in the holder's state identifies the claimed sandbox, so that successive
// processes agree.
//
// Nothing here isolates: the Pod does, as far as a Pod can. The package compares the agent's
// findings with the spec: Info reports the differences, and Strict refuses them.
package beside
