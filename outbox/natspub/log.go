package natspub

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
)

// logger has the server's warnings and errors logged as ours are.
type logger struct{ err atomic.Pointer[error] }

// last is the last error that the server has logged, which is all that it says of a failed start.
func (l *logger) last() error {
	if err := l.err.Load(); err != nil {
		return *err
	}
	return errors.New("for no reason that it gives")
}

// Noticef drops what is no trouble.
func (l *logger) Noticef(string, ...any) {}

// Warnf logs a warning.
func (l *logger) Warnf(format string, args ...any) {
	slog.Warn("NATS server: " + fmt.Sprintf(format, args...))
}

// Errorf logs an error.
func (l *logger) Errorf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	l.err.Store(&err)
	slog.Error("NATS server: " + err.Error())
}

// Fatalf logs an error too: the process is not the server's to end.
func (l *logger) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

// Debugf drops what only the server's authors read.
func (l *logger) Debugf(string, ...any) {}

// Tracef drops it too.
func (l *logger) Tracef(string, ...any) {}
