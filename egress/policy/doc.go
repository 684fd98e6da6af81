// Package policy decides which hosts a sandbox may reach: it parses rules, normalizes
// names and addresses, and makes the decisions. It opens no connections and resolves no
// names; package egress does, and asks this package.
//
// A rule allows one of these:
//
//	HOST[:PORT,…]           TLS and HTTP to that name; ports 443 and 80 by default
//	*.HOST[:PORT,…]         the same for each name below HOST, not for HOST itself
//	tcp:HOST:PORT[,…]       any bytes: ssh, databases
//	private:HOST[:PORT,…]   HOST may also have a private address
//	private:tcp:HOST:PORT   both
//	host:PORT[,…]           a port of this machine, under the name host.wisbox
//	python node debian git  the needs of the package manager of that name (presets.txt);
//	go rust                 git:read and npm:read fetch and can't publish
//	public[:PORT,…]         every name with a public address
//
// A rule names hosts, never addresses. Names are normalized to lower case,
// ASCII (IDNA), without a final dot. Hosts that no rule allows are denied, and the zero
// Policy denies everything. A Deny rule overrides all rules that allow. An injection
// adds a secret to requests; see [Injection].
package policy
