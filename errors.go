package changefeed

import (
	"errors"
	"fmt"
)

// ErrNotRunning means that no call of [Processor.Run] is running.
var ErrNotRunning = errors.New("the processor is not running")

// OptionError describes an option that [New] refuses.
type OptionError struct {
	Field string // as in Options
	Value string
	Want  string
}

// Error names the field, the value and the allowed values.
func (e *OptionError) Error() string {
	return fmt.Sprintf("option %s is %s: want %s", e.Field, e.Value, e.Want)
}
