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

// A change is the shown form of a change of a feed. Numbers that a browser could round are texts.
type change struct {
	LSN      string `json:"lsn"`
	Time     string `json:"time"`
	Op       string `json:"op"`
	Expired  bool   `json:"expired"`
	ID       string `json:"id"`
	Key      string `json:"key"`
	Document string `json:"document"` // empty for a delete
	Previous string `json:"previous"` // empty if missing in the feed
	Cut      bool   `json:"cut"`
}

// maxFed is how much of a document is shown of a change, in bytes.
const maxFed = 64 << 10

// changeOf is the shown form of a change.
func changeOf(c *feed.Change) change {
	shown := change{
		LSN: strconv.FormatInt(c.LSN, 10), Time: c.Time.UTC().Format(time.RFC3339), Op: c.Op.String(),
		Expired: c.Expired,
		ID:      c.ID, Key: string(c.PartitionKey),
	}
	var isCut, wasCut bool
	shown.Document, isCut = cutText(items.WithoutSystem(c.Body), maxFed)
	shown.Previous, wasCut = cutText(items.WithoutSystem(c.Previous), maxFed)
	shown.Cut = isCut || wasCut
	return shown
}

// errBusy is why a feed is refused.
var errBusy = errors.New("more than " + strconv.Itoa(mostFeeds) + " feeds are shown already: close one")

// follow answers with a feed as server-sent events, until the viewer goes. follow reads no more of the feed before the
// viewer has taken the last page.
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
	if r.Method == http.MethodHead {
		return nil
	}
	// A browser that connects again names the time of its last change: the changes of that second come again.
	at := from.Value
	if last, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64); err == nil && !mode.IsAll() {
		at = feed.FromTime(time.Unix(last, 0))
	}
	source := t.Container().Source
	parts, err := source.Partitions(r.Context())
	if err != nil {
		return err
	}
	o := feed.ReadOptions{Mode: mode.Value, Key: key, MaxItems: defaultRows}
	to := &stream{w: w, at: http.NewResponseController(w)}
	if key != "" {
		parts = parts[:1] // of the key
	}
	return to.copyFeed(r.Context(), to.noticing(source, len(parts)), at, o)
}

// orElse is a text, or another text in place of an empty text.
func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// stream writes to a viewer.
type stream struct {
	w     http.ResponseWriter
	at    *http.ResponseController
	begun bool
}

// send writes an event, for which the viewer has some time. An error shows in flush.
func (s *stream) send(format string, args ...any) {
	s.begin()
	_ = s.at.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
	_, _ = fmt.Fprintf(s.w, format, args...)
}

// flush sends the written bytes.
func (s *stream) flush() error { return s.at.Flush() }

// begin tells the viewer that there is a feed. Before that, an error can still be the answer.
func (s *stream) begin() {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.WriteHeader(http.StatusOK)
	}
}

// beginning is a source that notices the first read of each partition. From then on all new writes are in the feed, and
// the viewer may know that.
type beginning struct {
	feed.Source
	to   *stream
	read map[feed.Range]bool
	want int
}

// noticing returns a source with the abilities that a pull uses.
func (s *stream) noticing(source feed.Source, partitions int) feed.Source {
	b := &beginning{source, s, map[feed.Range]bool{}, partitions}
	if locator, ok := source.(feed.Locator); ok {
		return struct {
			*beginning
			feed.Locator
		}{b, locator}
	}
	return b
}

// Read implements [feed.Source].
func (b *beginning) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page,
	error,
) {
	page, err := b.Source.Read(ctx, r, from, o)
	if err != nil || b.to.begun {
		return page, err
	}
	if b.read[r] = true; len(b.read) >= b.want {
		b.to.send(": %s\n\n", "the feed follows")
		_ = b.to.flush() // an error shows again
	}
	return page, nil
}

// Wait implements [feed.Waiter].
func (b *beginning) Wait(ctx context.Context, r feed.Range, from feed.Position) error {
	if waiter, ok := b.Source.(feed.Waiter); ok {
		return waiter.Wait(ctx, r, from)
	}
	return errors.ErrUnsupported
}

// copyFeed sends the changes of a feed until ctx ends, or the viewer takes no more.
func (s *stream) copyFeed(ctx context.Context, source feed.Source, from feed.Start, o feed.ReadOptions) error {
	pages := changefeed.Pull(ctx, source, feed.FullRange(), feed.Position{Start: from},
		changefeed.PullOptions{ReadOptions: o, Follow: true, Poll: time.Second})
	for page, err := range pages {
		if err != nil && !s.begun {
			return err
		}
		if err != nil {
			s.send("event: problem\ndata: %s\n", jsonOf(failure{Error: err.Error()}))
			_ = s.flush()
			return nil
		}
		for i := range page.Changes {
			c := &page.Changes[i]
			s.send("id: %d\nevent: change\ndata: %s\n", c.Time.Unix(), jsonOf(changeOf(c)))
		}
		if s.flush() != nil {
			return nil
		}
	}
	return nil
}
