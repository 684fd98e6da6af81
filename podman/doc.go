// Package podman is wisbox's [sandbox.Backend] for Podman. Each sandbox is one container, which is
// created, found and removed through Podman's API. The resident agent (package agent) runs its
// programs. The package knows nothing of tools, sessions or the files in a workspace.
//
// # Which Podman
//
// An explicit URL (Options, PODMAN_BASE_URL, CONTAINER_HOST) or a named
// connection (PODMAN_CONNECTION) is used and nothing else. Otherwise wisbox runs
// a service of its own: `podman system service` on a socket in a private
// directory, with a containers.conf that fits the host and the user's own store.
// All wisbox processes of a user share it, and the description of its host that the first of them
// requested. It ends by itself when it is idle, and is started again when it is needed. If it can't be
// started, the user's socket and then the system's are tried.
//
// # Use of the bindings
//
// Connections (unix, ssh, tcp), the create spec and the inspect types come from
// Podman's Go packages. Three things are done here instead:
//
//   - Requests. Those of the bindings are repeated three times even after the end of the context,
//     with an empty body from the second time on.
//   - Attaching. ExecStartAndAttach swaps the transport of the client that all
//     requests share (a data race), and a cancelled context doesn't end it. Here
//     every attach is a connection of its own, and closing it ends it.
//   - The endpoints. The packages that wrap them link the image library, an RPC
//     stack and a registry client: 16 MB of binary for a few JSON requests.
//
// # Leftovers
//
// An error or a cancelled Create leaves nothing. A crash may leave containers with the labels
// wisbox.root, wisbox.sandbox, wisbox.boot and wisbox.owner, which [Backend.List] finds and
// [Backend.Remove] removes.
package podman
