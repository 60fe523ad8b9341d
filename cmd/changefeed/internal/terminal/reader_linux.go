package terminal

import "syscall"

// hasNoReader reports whether the reading end of a pipe has been closed.
func hasNoReader(writing uintptr) bool {
	events, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Close(events) }()
	if err := syscall.EpollCtl(events, syscall.EPOLL_CTL_ADD, int(writing), &syscall.EpollEvent{}); err != nil {
		return false
	}
	var found [1]syscall.EpollEvent
	n, err := syscall.EpollWait(events, found[:], 0)
	return err == nil && n == 1 && found[0].Events&syscall.EPOLLERR != 0
}
