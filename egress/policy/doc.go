// Package policy says what a sandbox may reach: rules in text, names and
// addresses in one form, and decisions. It opens no connection and resolves no
// name; package egress does, and asks here.
//
// A rule allows one of these:
//
//	HOST[:PORT,…]           TLS and HTTP to that name; ports 443 and 80 by default
//	*.HOST[:PORT,…]         the same for each name below HOST, not for HOST itself
//	tcp:HOST:PORT[,…]       any bytes: ssh, databases
//	private:HOST[:PORT,…]   HOST may also have a private address
//	private:tcp:HOST:PORT   both
//	host:PORT[,…]           a port of this machine, under the name host.wisbox
//	python node debian git  what the package managers of that name need (presets.txt);
//	go rust                 git:read and npm:read fetch and can't publish
//	public[:PORT,…]         every name with a public address
//
// A rule names hosts, never addresses. A name has one form: lower case, ASCII
// (IDNA), no dot at its end. What no rule allows is denied, and the zero Policy
// denies everything. A rule of Deny wins over all that allow. An injection adds a
// secret to requests, see [Injection].
package policy
