package changefeedtest

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// TortureReport is what [Torture] fails its test with, for tests of handlers that it must refuse.
func TortureReport[E any](t *testing.T, o TortureOptions, start func(t *testing.T) (feed.Handler, func() E)) string {
	t.Helper()
	return torture(t, o, withoutType(start))
}

// CauseOf returns why the context of a tortured handler has ended, without a look that could end it.
var CauseOf = causeOf

// SetStillAfter changes how much real time a run may take.
func SetStillAfter(t *testing.T, d time.Duration) {
	before := stillAfter
	stillAfter = d
	t.Cleanup(func() { stillAfter = before })
}
