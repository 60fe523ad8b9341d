package explorer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/arg"
	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// A change is a change of a feed as it is shown. Numbers that a browser could round are texts.
type change struct {
	LSN      string `json:"lsn"`
	Time     string `json:"time"`
	Op       string `json:"op"`
	Expired  bool   `json:"expired"`
	ID       string `json:"id"`
	Key      string `json:"key"`
	Document string `json:"document"` // empty for a delete
	Previous string `json:"previous"` // empty if the feed does not have it
	Cut      bool   `json:"cut"`
}

// maxFed is how much of a document is shown of a change, in bytes.
const maxFed = 64 << 10

// changeOf is a change as it is shown.
func changeOf(c *feed.Change) change {
	shown := change{
		LSN: strconv.FormatInt(c.LSN, 10), Time: c.Time.UTC().Format(time.RFC3339), Op: c.Op.String(), Expired: c.Expired,
		ID: c.ID, Key: string(c.PartitionKey),
	}
	var isCut, wasCut bool
	shown.Document, isCut = cutText(items.WithoutSystem(c.Body), maxFed)
	shown.Previous, wasCut = cutText(items.WithoutSystem(c.Previous), maxFed)
	shown.Cut = isCut || wasCut
	return shown
}

// errBusy is why a feed is refused.
var errBusy = errors.New("more than " + strconv.Itoa(mostFeeds) + " feeds are shown already: close one")

// follow answers with a feed as server-sent events, until the viewer goes. It reads no more of the feed before the
// viewer has taken what was read.
func (e *Explorer) follow(w http.ResponseWriter, r *http.Request) error {
	var mode arg.Mode
	if err := mode.Set(orElse(r.FormValue("mode"), "latest")); err != nil {
		return usage.Error{Err: fmt.Errorf("mode is %s: %w", r.FormValue("mode"), err)}
	}
	var from arg.Start
	if err := from.Set(orElse(r.FormValue("from"), "now")); err != nil {
		return usage.Error{Err: fmt.Errorf("from is %s: %w", r.FormValue("from"), err)}
	}
	if mode.IsAll() && !from.Value.IsNow() {
		return usage.Error{Err: fmt.Errorf("from is %s: want now with mode all", from.String())}
	}
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	t, err := e.open(r)
	if err != nil {
		return err
	}
	if c := t.Container(); c.Retains(mode.Value) != nil {
		return usage.Error{Err: fmt.Errorf("mode is all: container %s keeps no versions: want mode latest, or a container "+
			"with a retention", c.Address.Name())}
	}
	select {
	case e.feeds <- struct{}{}:
		defer func() { <-e.feeds }()
	default:
		return errBusy
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return nil
	}
	w.WriteHeader(http.StatusOK)
	to := stream{w, http.NewResponseController(w)}
	to.send(": %s\n\n", "the feed follows")
	if to.flush() != nil {
		return nil
	}
	// A browser that connects again says the time of the last change that it has: those of its second come again.
	at := from.Value
	if last, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64); err == nil && !mode.IsAll() {
		at = feed.FromTime(time.Unix(last, 0))
	}
	to.copyFeed(r.Context(), t.Container().Source, at, feed.ReadOptions{Mode: mode.Value, Key: key, MaxItems: defaultRows})
	return nil
}

// orElse is a text, or another one if it is empty.
func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// stream writes to a viewer.
type stream struct {
	w  http.ResponseWriter
	at *http.ResponseController
}

// send writes an event, for which the viewer has some time. An error shows in flush.
func (s stream) send(format string, args ...any) {
	_ = s.at.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
	_, _ = fmt.Fprintf(s.w, format, args...)
}

// flush sends what was written.
func (s stream) flush() error { return s.at.Flush() }

// copyFeed sends the changes of a feed until ctx ends, or the viewer takes no more.
func (s stream) copyFeed(ctx context.Context, source feed.Source, from feed.Start, o feed.ReadOptions) {
	pages := changefeed.Pull(ctx, source, feed.FullRange(), feed.Position{Start: from},
		changefeed.PullOptions{ReadOptions: o, Follow: true, Poll: time.Second})
	for page, err := range pages {
		if err != nil {
			s.send("event: problem\ndata: %s\n", jsonOf(failure{Error: err.Error()}))
			_ = s.flush()
			return
		}
		for i := range page.Changes {
			c := &page.Changes[i]
			s.send("id: %d\nevent: change\ndata: %s\n", c.Time.Unix(), jsonOf(changeOf(c)))
		}
		if s.flush() != nil {
			return
		}
	}
}
