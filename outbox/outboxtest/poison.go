package outboxtest

import (
	"errors"
	"fmt"
)

// isPoison reports whether an error is [changefeed.Poison], or wraps one.
func isPoison(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if fmt.Sprintf("%T", err) == "*changefeed.poison" {
			return true
		}
	}
	return false
}
