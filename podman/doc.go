// Package podman is the [sandbox.Backend] of the product: every sandbox is one
// Podman container that is made, found and removed through Podman's API, and
// every program runs through the resident agent (package agent) over one
// attached exec. It knows containers; it knows nothing of tools, sessions or
// the files in a workspace.
//
// # Which Podman
//
// An explicit URL (Options, PODMAN_BASE_URL, CONTAINER_HOST) or a named
// connection (PODMAN_CONNECTION) is used and nothing else. Otherwise wisbox runs
// a service of its own: `podman system service` on a socket in a private
// directory, with a containers.conf that fits the host and the user's own store.
// All wisbox processes of a user share it, and what the first of them asked it
// about its host; it ends by itself when it is idle and is started again when it
// is needed. Where it can't be started, the user's
// socket and then the system's are tried.
//
// # What of the bindings is used
//
// Connections (unix, ssh, tcp), the create spec and the inspect types come from
// Podman's Go packages. Three things are done here instead:
//
//   - Requests. The bindings' own repeat three times whatever the context says,
//     and send an empty body the second time.
//   - Attaching. ExecStartAndAttach swaps the transport of the client that all
//     requests share (a data race), and a cancelled context doesn't end it. Here
//     every attach is a connection of its own, and closing it ends it.
//   - The endpoints. The packages that wrap them link the image library, an RPC
//     stack and a registry client: 16 MB of binary for a few JSON requests.
//
// # What is left behind
//
// Nothing, after an error or a cancelled Create. After a crash, containers with
// the labels wisbox.root, wisbox.sandbox, wisbox.boot and wisbox.owner, which
// [Backend.List] finds and [Backend.Remove] removes.
package podman
