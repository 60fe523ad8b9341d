//go:build !unix

package cosmosrest

import "net"

// hasUnread reports whether the client has sent bytes that the server has not read yet. This system cannot tell, so
// only the patience with strangers counts.
func hasUnread(net.Conn) bool { return false }
