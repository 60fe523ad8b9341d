//go:build !unix

package cosmosrest

import "net"

// hasUnread would report whether something has come from a client that nobody has read yet.
// Where the system does not tell, the patience with strangers has to do.
func hasUnread(net.Conn) bool { return false }
