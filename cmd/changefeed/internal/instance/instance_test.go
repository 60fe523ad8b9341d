package instance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

func TestWrongSettingsAreNamedByTheirFlags(t *testing.T) {
	for _, tt := range []struct {
		edit func(*Settings)
		want string // empty for none
	}{
		{func(*Settings) {}, ""},
		{func(s *Settings) { s.Source = "orders" }, `--source is "orders"`},
		{func(s *Settings) { s.Leases = "leases" }, `--leases is "leases"`},
		{func(s *Settings) { s.Options.OnFailure.HoldKeys = true }, "--hold is set without --dead-letters"},
		{func(s *Settings) {
			s.Options.OnFailure.HoldKeys, s.Options.OnFailure.MaxAttempts = true, 2
		}, "--hold is set without --dead-letters"},
		{func(s *Settings) {
			s.Options.OnFailure.MaxAttempts = 2
		}, "--max-attempts is 2: want --dead-letters beside it"},
		{func(s *Settings) {
			s.Options.OnFailure.MaxAge = time.Hour
		}, "--max-age is 1h: want --dead-letters beside it"},
		{func(s *Settings) {
			s.Letters = "letters.ndjson"
		}, "--dead-letters is letters.ndjson: want --max-attempts or --max-age"},
		{func(s *Settings) { s.Name = "a/b" }, `--name is "a/b": want one that tells this deployment unit from others`},
		{func(s *Settings) { s.Name = "" }, `--name is ""`},
		{func(s *Settings) { s.Options.Concurrency = -3 }, "--concurrency is -3"},
		{func(s *Settings) { s.Options.MaxItems = -3 }, "--batch-size is -3"},
		{func(s *Settings) { s.Options.HandlerTimeout = -1 }, "--timeout is -1ns"},
		{func(s *Settings) { s.Options.Renew = time.Hour }, "--renew is 1h: want less than 54s, which is --expiration minus its safety margin (6s)"},
		{func(s *Settings) { s.Options.OnFailure.MaxAttempts = -1 }, "--max-attempts is -1"},
		{func(s *Settings) {
			s.Letters, s.Options.OnFailure.MaxAttempts, s.Options.OnFailure.MaxAge = "letters.ndjson", 2, -1
		}, "--max-age is -1ns"},
		{func(s *Settings) {
			s.Letters, s.Options.OnFailure.MaxAttempts, s.Options.OnFailure.MaxSetAside = "letters.ndjson", 2, 5000
		}, "--max-set-aside is 5000"},
		{func(s *Settings) { s.Letters, s.Options.OnFailure.MaxAge = "letters.ndjson", time.Hour }, ""},
		{func(s *Settings) {
			s.Letters, s.Options.OnFailure.MaxAttempts, s.Options.OnFailure.HoldKeys = "letters.ndjson", 1, true
		}, ""},
	} {
		s := Settings{Name: "mailer", Source: "cosmos:shop/orders", Log: slog.New(slog.DiscardHandler)}
		tt.edit(&s)
		i, err := New(s)
		switch {
		case tt.want != "" && (!errors.As(err, new(usage.Error)) || !strings.HasPrefix(err.Error(), tt.want)):
			t.Errorf("got %v, want %q", err, tt.want)
		case tt.want == "" && (err != nil || i.leases.String() != "cosmos:shop/leases" ||
			i.leases.Field != "the default of --leases" ||
			!strings.HasSuffix(i.Options.Instance, fmt.Sprintf("-%d", os.Getpid()))):
			t.Errorf("got %+v, %v, want an instance with a name and leases beside its source", i, err)
		}
	}
}

func TestOptionsHaveFlags(t *testing.T) {
	for field, want := range map[string]string{
		"Renew": "renew", "MinLeases": "min-leases", "HandlerTimeout": "timeout",
		"Start": "from",
	} {
		if got := flagName(field); got != want {
			t.Errorf("%s: --%s, want --%s", field, got, want)
		}
	}
}

// orders is the address of a container with orders, in a store on disk.
func orders(t *testing.T, ids ...string) string {
	t.Helper()
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/id"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q}`, id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return "docstore:" + dir + "#orders"
}

// settings are those of an instance that handles all that there is.
func settings(source string, log io.Writer) Settings {
	return Settings{
		Name: "mailer", Source: source, Create: true, Once: true, Log: slog.New(slog.NewTextHandler(log, nil)),
		Options: changefeed.Options{Instance: "one", Start: feed.FromBeginning()},
	}
}

// run runs an instance whose handler fails for an id, and returns the ids in the batches that it has handled.
func run(t *testing.T, s Settings, bad string) (ids string, err error) {
	t.Helper()
	i, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	handler := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		var handled []string
		for _, c := range b.Changes {
			if c.ID == bad {
				return errors.New("no such address")
			}
			handled = append(handled, c.ID)
		}
		all = append(all, handled...)
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = i.Run(ctx, func(*place.Container) (Handler, error) { return Counted(handler), nil })
	if ctx.Err() != nil {
		t.Error("the instance has not ended within a minute")
	}
	return strings.Join(all, " "), err
}

// A unit goes on where it was, and what does not fit it is refused with what to write instead.
func TestAnInstanceRunsUntilAllIsHandled(t *testing.T) {
	s := settings(orders(t, "1", "2"), io.Discard)
	s.Create = false
	if _, err := run(t, s, ""); !errors.Is(err, place.ErrNoContainer) ||
		!strings.HasSuffix(err.Error(), ": --create-leases makes the lease container") {
		t.Errorf("without a lease container: %v", err)
	}
	s.Create = true
	ready := 0
	s.Options.Hooks.Ready = func(context.Context) { ready++ }
	if ids, err := run(t, s, ""); ids != "1 2" || err != nil || ready != 1 {
		t.Errorf("handled %s, %v, and was ready %d times", ids, err, ready)
	}
	if ids, err := run(t, s, ""); ids != "" || err != nil {
		t.Errorf("handled %s again, %v", ids, err)
	}
	s.Options.Start = feed.FromTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	if _, err := run(t, s, ""); err == nil || !strings.HasPrefix(err.Error(),
		`--from is 2026-01-02T03:04:05Z, but unit "mailer" began from beginning at `) ||
		!strings.Contains(err.Error(), "changefeed leases reset docstore:") {
		t.Errorf("another start: %v", err)
	}
	s.Options.Start, s.Options.Mode = feed.Start{}, feed.AllVersionsAndDeletes
	if _, err := run(t, s, ""); err == nil || !strings.HasPrefix(err.Error(), "--mode is all: container") {
		t.Errorf("all versions of a container that keeps none: %v", err)
	}
	s.Once = false // who goes on until somebody stops it learns that at the start, too
	i, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	err = i.Run(ctx, func(*place.Container) (Handler, error) { return &idle{}, nil })
	if ctx.Err() != nil || err == nil || !strings.HasPrefix(err.Error(), "--mode is all: container") {
		t.Errorf("all versions of a container that keeps none, without an end: %v", err)
	}
}

// open opens the store of a source for a while.
func open(t *testing.T, source string, use func(orders, leases *docstore.Container) error) {
	t.Helper()
	dir, _, _ := strings.Cut(strings.TrimPrefix(source, "docstore:"), "#")
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	orders, err := db.Container("orders")
	if err != nil {
		t.Fatal(err)
	}
	leases, err := db.Container("leases")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(use(orders, leases), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// spoil makes a lease's document one that cannot be read, and returns the number of changes in its range.
func spoil(t *testing.T, source string, ids ...string) (left int64) {
	open(t, source, func(orders, leases *docstore.Container) error {
		for _, id := range ids {
			if _, err := orders.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q}`, id)); err != nil {
				return err
			}
		}
		records, err := leases.Read(t.Context(), feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
			feed.ReadOptions{})
		if err != nil {
			return err
		}
		for _, doc := range records.Changes {
			body := strings.Replace(string(doc.Body), `"changefeed.expiration":"`, `"changefeed.expiration":"never, `,
				1)
			if body == string(doc.Body) || !strings.Contains(body, `"LeaseToken":"-`) {
				continue
			}
			if _, err := leases.Upsert(t.Context(), []byte(body)); err != nil {
				return err
			}
			r := feed.FullRange().Cut(2)[0]
			backlog, err := orders.Pending(t.Context(), r, feed.Position{Start: feed.FromBeginning()},
				feed.ReadOptions{})
			left = backlog.Items
			return err
		}
		return errors.New("no lease to spoil")
	})
	return left
}

// Of two leases another program has broken one. Nobody works on that, which is said, and the other one goes on.
func TestAnInstanceEndsWhenAllIsHandledButALeaseThatIsBroken(t *testing.T) {
	source := orders(t)
	s := settings(source, io.Discard)
	s.Options.MinLeases = 2
	if _, err := run(t, s, ""); err != nil {
		t.Fatal(err)
	}
	all := []string{"1", "2", "3", "4", "5", "6", "7", "8"}
	left := spoil(t, source, all...)
	var log bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	ids, err := run(t, s, "")
	if handled := len(strings.Fields(ids)); left == 0 || left == 8 || handled != 8-int(left) {
		t.Errorf("handled %s, %d are in the lease that is broken", ids, left)
	}
	if err == nil || !errors.Is(err, feed.ErrBadLease) ||
		!strings.Contains(err.Error(), "stand still until somebody mends them") ||
		!strings.Contains(err.Error(), "never, 1m0s") {
		t.Errorf("ended with %v", err)
	}
	if !strings.Contains(log.String(), "never, 1m0s") {
		t.Errorf("the log does not name the lease: %s", &log)
	}
}

func TestWhyAUnitDoesNotFitIsSaidInFlags(t *testing.T) {
	i := &Instance{Settings: Settings{Name: "mailer", Options: changefeed.Options{Mode: feed.AllVersionsAndDeletes}}}
	i.leases, _ = place.Parse("--leases", "cosmos:shop/leases")
	other := errors.New("disk full")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{
			fmt.Errorf("run: %w", feed.ErrModeChanged),
			`--mode is all, but unit "mailer" has leases of the other mode: to begin anew, take another --name, or first delete its leases: changefeed leases delete cosmos:shop/leases --name mailer`,
		},
		{
			feed.ErrLeasesGone,
			`unit "mailer" stands still: the leases of the unit are gone; restore cosmos:shop/leases, or start again, with --create-leases if it is missing and --from where the unit is to begin`,
		},
		{
			fmt.Errorf("run: %w", feed.ErrForeignLease),
			`unit "mailer" is a Java processor's, whose leases changefeed reads and does not write: stop it, and continue ` +
				`at its positions under another name: changefeed leases snapshot cosmos:shop/leases --name mailer > ` +
				`mailer.json, then changefeed leases restore mailer.json cosmos:shop/leases --name mailer-2 --source ADDRESS`,
		},
		{fmt.Errorf("run: %w", feed.ErrForeignLease), "and --from the time of the oldest change"},
		{&feed.StartError{Leases: []string{"0", "1"}}, "0, 1"},
		{&feed.StartError{Leases: []string{"0"}}, "has leases without a position, and nothing says where it began"},
		{
			fmt.Errorf("run: %w", leasedoc.ErrSecondSet),
			`unit "mailer" has two sets of leases, made by different names of this machine: changefeed leases cosmos:shop/leases shows both`,
		},
		{other, "disk full"},
	} {
		if got := i.explainRefusal(tt.err); !strings.Contains(got.Error(), tt.want) {
			t.Errorf("%v: got %v, want %q", tt.err, got, tt.want)
		}
	}
}

// A check finds a wrong place for dead letters also if the leases are to be made. What Run would make is no mistake.
func TestACheckLooksForTheDeadLetters(t *testing.T) {
	source := orders(t, "1")
	s := settings(source, io.Discard)
	s.Options.OnFailure.MaxAttempts = 1
	for letters, want := range map[string]string{
		strings.Replace(source, "#orders", "#letters", 1):    "",
		"docstore:" + filepath.Join(t.TempDir(), "#letters"): "there is no store in it",
		filepath.Join(t.TempDir(), "letters.ndjson"):         "",
	} {
		s.Letters = letters
		i, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		err = i.Check(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", letters, err, want)
		}
	}
	dir, _, _ := strings.Cut(strings.TrimPrefix(source, "docstore:"), "#")
	db, err := docstore.Open(dir, docstore.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	if made := db.Containers(); len(made) != 1 {
		t.Errorf("a check has made containers: there are %d, want orders alone", len(made))
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeHandledIsParkedInAFileOrAContainer(t *testing.T) {
	source := orders(t, "1", "bad", "2")
	file := filepath.Join(t.TempDir(), "letters.ndjson")
	var log bytes.Buffer
	s := settings(source, &log)
	s.Options.OnFailure.MaxAttempts, s.Options.OnFailure.HoldKeys, s.Letters = 1, true, file
	said := ""
	s.Say = func(text string) { said += text }
	if ids, err := run(t, s, "bad"); ids != "1 2" || err != nil {
		t.Errorf("handled %s, %v", ids, err)
	}
	if want := "ended: 1 change parked: see changefeed dlq list " + file + " --name mailer"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
	if !strings.Contains(log.String(), "belongs to this process") {
		t.Errorf("logged %s, want that held keys want a container", log.String())
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Contains(text, []byte("no such address")) {
		t.Errorf("the file has %s, %v", text, err)
	}
	box, err := deadletters.File(file, "mailer") // it was closed
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, s, ""); !errors.Is(err, deadletters.ErrInUse) ||
		!strings.Contains(err.Error(), "want a file of its own for each process") {
		t.Errorf("a file in use: %v", err)
	}
	if err := box.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err == nil {
		err = os.Truncate(file, int64(len(whole)-3))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, s, ""); err != nil || !strings.Contains(log.String(),
		"the last line of the dead letters was cut off") {
		t.Errorf("a file whose last line a crash had interrupted: %v; logged %s", err, log.String())
	}

	s = settings(source, io.Discard)
	s.Name, s.Options.OnFailure.MaxAttempts, s.Letters = "filer", 1, strings.Replace(source, "#orders", "#letters", 1)
	if ids, err := run(t, s, "bad"); ids != "1 2" || err != nil {
		t.Errorf("handled %s, %v", ids, err)
	}
	at, err := place.Parse("ADDRESS", s.Letters)
	if err != nil {
		t.Fatal(err)
	}
	opener := place.NewOpener(place.Settings{})
	c, err := opener.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	boxes, err := deadletters.Boxes(t.Context(), c.Concrete(), "filer")
	if err != nil || len(boxes) != 1 || boxes[0].Source() != "default/orders" {
		t.Errorf("%d boxes, %v, want that of the unit which reads orders", len(boxes), err)
	}
	if err := opener.Close(); err != nil {
		t.Fatal(err)
	}
	s.Name, s.Create, s.Letters = "biller", false, s.Letters+"2"
	if _, err := run(t, s, ""); !errors.Is(err, place.ErrNoContainer) ||
		!strings.HasSuffix(err.Error(), "makes the container for dead letters, too; the store has leases, letters, orders") {
		t.Errorf("without a container for letters: %v", err)
	}
}

// An option that the processor refuses is named by the flag that sets it, also if it is a field of a struct.
func TestRefusedOptionsAreNamedByTheirFlags(t *testing.T) {
	for field, want := range map[string]string{
		"Renew": "renew", "MaxItems": "batch-size", "HandlerTimeout": "timeout",
		"OnFailure.MaxSetAside": "max-set-aside",
	} {
		if got := flagName(field); got != want {
			t.Errorf("%s is named --%s, want --%s", field, got, want)
		}
	}
}
