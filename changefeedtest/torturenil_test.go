package changefeedtest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/feed"
)

// Who forgets a function hears which one, instead of a panic in a goroutine of Torture.
func TestTortureNamesTheFunctionThatIsMissing(t *testing.T) {
	handler := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
	effects := func() int { return 1 }
	returning := func(h feed.Handler, e func() int) func(*testing.T) (feed.Handler, func() int) {
		return func(*testing.T) (feed.Handler, func() int) { return h, e }
	}
	for _, tt := range []struct {
		name  string
		start func(*testing.T) (feed.Handler, func() int)
		want  string
	}{
		{"start", nil, "start is nil: want a function"},
		{"the handler", returning(nil, effects), "The handler is nil"},
		{"the effects", returning(handler, nil), "The function that reports effects is nil"},
		{"what makes handlers", returning(changefeedtest.PerInstance(nil), effects), "The handler is nil"},
		{
			"a made handler",
			returning(changefeedtest.PerInstance(func() feed.Handler { return nil }), effects), "The handler is nil",
		},
	} {
		report := changefeedtest.TortureReport(t, changefeedtest.TortureOptions{}, tt.start)
		if !strings.Contains(report, tt.want) {
			t.Errorf("without %s: got %q, want %q", tt.name, report, tt.want)
		}
	}
}
