package natspub

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
)

// logger writes the server's warnings and errors to slog.
type logger struct{ err atomic.Pointer[error] }

// lastError returns the last error that the server has logged, because a failed start gives no other reason.
func (l *logger) lastError() error {
	if err := l.err.Load(); err != nil {
		return *err
	}
	return errors.New("for no reason that it gives")
}

// Noticef drops harmless messages.
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

// Fatalf logs an error too: the server must not end the process.
func (l *logger) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

// Debugf drops messages for the server's authors.
func (l *logger) Debugf(string, ...any) {}

// Tracef drops them too.
func (l *logger) Tracef(string, ...any) {}
