//go:build unix

package cosmosrest

import (
	"net"
	"syscall"
)

// hasUnread reports whether the client has sent bytes that the server has not read yet, for example because the
// goroutine that serves the client waits for a processor.
func hasUnread(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		// does not block, because net's sockets are non-blocking
		n, _, _ = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
	})
	return err == nil && n > 0
}
