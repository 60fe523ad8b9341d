package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/bench"
	"github.com/millrace/changefeed/cmd/changefeed/internal/letters"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/trigger/program"
)

// Each flag of an instance sets what it names. Without flags there are the defaults that the documentation of
// changefeed.Options gives.
func TestFlagsOfAnInstanceSetWhatTheyName(t *testing.T) {
	want := changefeed.Options{
		Poll: 5 * time.Second, Acquire: 13 * time.Second, Renew: 17 * time.Second,
		Expiration: time.Minute, Drain: 10 * time.Second,
		HandlerTimeout: 10 * time.Minute, Concurrency: 1, Weight: 1,
		OnFailure: changefeed.FailurePolicy{MaxSetAside: 100},
	}
	var o runOptions
	o.register(&cobra.Command{})
	if got, wanted := told(t, o.Options), told(t, want); got != wanted {
		t.Errorf("without flags: %s, want %s", got, wanted)
	}
	want = changefeed.Options{
		Instance: "one", MaxItems: 1, MinLeases: 2, Poll: 3 * time.Second, Acquire: 4 * time.Second,
		Renew: 5 * time.Second, Weight: 13, ShareByLoad: true,
		Expiration: 6 * time.Second, Drain: 7 * time.Second, HandlerTimeout: 8 * time.Second, Concurrency: 9,
		OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 10,
			MaxAge:      11 * time.Second,
			MaxSetAside: 12,
			HoldKeys:    true,
		},
	}
	cmd := &cobra.Command{}
	o.register(cmd)
	err := cmd.ParseFlags(strings.Fields("--instance one --batch-size 1 --min-leases 2 --poll 3s --acquire 4s " +
		"--renew 5s --expiration 6s --drain 7s --timeout 8s --concurrency 9 --max-attempts 10 --max-age 11s " +
		"--max-set-aside 12 --hold --weight 13 --share-by-load"))
	if got, wanted := told(t, o.Options), told(t, want); err != nil || got != wanted {
		t.Errorf("got %s, %v, want %s", got, err, wanted)
	}
}

// told are options as text, without what no flag sets.
func told(t *testing.T, o changefeed.Options) string {
	t.Helper()
	text, err := json.Marshal([]any{
		o.Instance, o.MaxItems, o.MinLeases, o.Poll, o.Acquire, o.Renew, o.Expiration, o.Drain, o.HandlerTimeout,
		o.Concurrency, o.OnFailure.MaxAttempts, o.OnFailure.MaxAge, o.OnFailure.MaxSetAside, o.OnFailure.HoldKeys,
		o.Weight, o.ShareByLoad,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What the flags say of the program reaches it. The expiration of the leases bounds how long one may go on without its
// lease.
func TestAProgramKnowsItsLimits(t *testing.T) {
	var o runOptions
	cmd := &cobra.Command{}
	o.register(cmd)
	if err := cmd.ParseFlags(strings.Fields("--meta --grace 2s --jobs 3 --expiration 4s")); err != nil {
		t.Fatal(err)
	}
	want := program.Options{
		Meta: true, Grace: 2 * time.Second, Jobs: 3, Expiration: 4 * time.Second, Stdout: io.Discard,
		Log: slog.Default(),
	}
	if got := o.programOptions(io.Discard, slog.Default()); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A relay that lets events expire writes to their container. Any other one reads it, because a relay of another unit
// may let them expire.
func TestARelayKnowsItsContainer(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "contacts", Paths: []string{"/partitionKey"}})
	if err != nil {
		t.Fatal(err)
	}
	monitored := place.Stored(c, place.Address{Container: "contacts"})
	for _, tt := range []struct {
		flags           string
		container, feed bool
		expire          time.Duration
	}{{"", false, true, 0}, {"--expire-after 1h", true, false, time.Hour}} {
		var o relayOptions
		cmd := &cobra.Command{}
		o.register(cmd)
		if err := cmd.ParseFlags(strings.Fields(tt.flags +
			" --to embedded:nats --alarm 5m --origin /contacts")); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		got := o.handlerOptions(slog.New(slog.NewTextHandler(&log, nil)), monitored)
		if got.Source != "/contacts" || got.Alarm != 5*time.Minute || got.ExpireAfter != tt.expire ||
			(got.Container != nil) != tt.container || (got.Feed != nil) != tt.feed {
			t.Errorf("%q: got %+v", tt.flags, got)
		}
		got.Hooks.Expiring(outbox.Message{Key: "c1", ID: "e1", Action: "Created"}, 90*time.Second)
		text := log.String()
		if !strings.Contains(text, "level=WARN") || !strings.Contains(text, "id=e1") ||
			!strings.Contains(text, "left=1m30s") {
			t.Errorf("the warning of an event that expires: %q", text)
		}
	}
}

// Rejects go beside the input, unless they are wanted elsewhere.
func TestRejectsHaveAFile(t *testing.T) {
	for _, tt := range [][3]string{
		{"in.ndjson", "", "in.ndjson.rejects"},
		{"-", "", "stdin.rejects"},
		{"-", "bad", "bad"},
		{"in.ndjson", "bad", "bad"},
	} {
		o := importOptions{input: tt[0]}
		o.ranges = 1
		o.load.Rejects, o.load.Writers = tt[1], 1
		if err := o.checkFlags(); err != nil || o.load.Rejects != tt[2] {
			t.Errorf("of %s with %q: %q, %v, want %s", tt[0], tt[1], o.load.Rejects, err, tt[2])
		}
	}
}

// An input is read under one name and may have others.
func TestRejectsAreNeverWrittenOverTheInput(t *testing.T) {
	dir := t.TempDir()
	in, link, store := filepath.Join(dir, "in.ndjson"), filepath.Join(dir, "link"), filepath.Join(dir, "data")
	if err := os.WriteFile(in, []byte("bad\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(in, link); err != nil {
		t.Skipf("the file system has no hard links: %v", err)
	}
	for _, rejects := range []string{in, filepath.Join(dir, ".", "in.ndjson"), link, "-"} {
		_, _, err := call(t, "import", in, "docstore:"+store+"#c", "--pk", "/id", "--rejects", rejects)
		if err == nil || !strings.HasPrefix(err.Error(), "--rejects is "+rejects+": want ") {
			t.Errorf("rejects in %s: %v", rejects, err)
		}
	}
	if text, err := os.ReadFile(in); err != nil || string(text) != "bad\n" {
		t.Errorf("the input is %q, %v", text, err)
	}
	if _, err := os.Stat(store); err == nil {
		t.Error("a store was made")
	}
}

// A container that nothing can be loaded into is not made.
func TestAMissingInputMakesNoContainer(t *testing.T) {
	store := filepath.Join(t.TempDir(), "data")
	if _, _, err := call(t, "import", filepath.Join(t.TempDir(), "missing"), "docstore:"+store+"#c", "--pk",
		"/id"); err == nil {
		t.Error("a missing input was imported")
	}
	if _, err := os.Stat(store); err == nil {
		t.Error("a store was made")
	}
}

// A list that was not written is no success.
func TestPartitionsThatAreNotWrittenAreAnError(t *testing.T) {
	full, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	full.Close()
	for _, form := range []report.Form{report.Table, report.JSON} {
		o := partitionOptions{report: report.New(form, full)}
		err := o.writePartitions([]feed.Partition{{ID: "0", Range: feed.FullRange()}}, nil)
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: got %v, want %v", form, err, os.ErrClosed)
		}
	}
}

// Who asked for several letters learns what became of those before an error.
func TestARedriveThatFailsCountsWhatWasDone(t *testing.T) {
	failed, file := errors.New("failed"), filepath.Join(t.TempDir(), "mailer.ndjson")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		answers int
		want    string
	}{{0, ""}, {1, " of [\"London\"] is handled\nhandled 1, failed again 0, not served 0, nothing to do 0\n"}} {
		var o redriveOptions
		var out bytes.Buffer
		cmd := &cobra.Command{}
		o.register(cmd)
		if err := cmd.ParseFlags(strings.Fields("--name mailer --leases http://127.0.0.1:1/shop/leases")); err != nil {
			t.Fatal(err)
		}
		answers := letters.NewReport(report.New(report.Table, &out), "handled", "letter")
		err := o.askProcessors(cmd, []string{file}, func() error { return nil }, answers, func(*letters.Redrive) error {
			for range tt.answers {
				a := letters.Answer{ID: "12.0", Key: json.RawMessage(`["London"]`), Result: "handled", Handled: 1}
				if err := answers.Write(a); err != nil {
					return err
				}
			}
			return failed
		})
		if !errors.Is(err, failed) || out.String() != tt.want {
			t.Errorf("after %d answers: got %q, %v, want %q", tt.answers, out.String(), err, tt.want)
		}
	}
}

// To delete is not to list, in whichever form the outcome is wanted.
func TestTheLeasesOfAUnitAreDeletedInEachForm(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(in, generated(3), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#c", "--pk", "/outcode")
	for _, unit := range []string{"one", "two"} {
		if _, err := process(t.Context(), dir, "c", unit); err != nil {
			t.Fatal(err)
		}
	}
	for form, want := range map[string]string{
		"text": "deleted unit one on c with 1 lease\n",
		"json": `{"kind":"deleted_unit","schema":1,"processor":"two","container":"c","deleted":1,"dry_run":false}` +
			"\n",
	} {
		name := map[string]string{"text": "one", "json": "two"}[form]
		if got := command(t, "leases", "delete", "--db", dir, "--name", name, "--yes", "-o", form); got != want {
			t.Errorf("%s: got %q, want %q", form, got, want)
		}
	}
	if got := command(t, "leases", "--db", dir, "-o", "json"); got != "" {
		t.Errorf("leases that are left: %s", got)
	}
	// The default name of the container is a guess of ours, one that was given is none.
	_, _, err := call(t, "leases", "--db", dir, "--container", "none")
	if !errors.Is(err, place.ErrNoContainer) || strings.Contains(err.Error(), "by themselves") {
		t.Errorf("of a container that is not there: %v", err)
	}
}

// Another build is measured by what was named. Without names it is measured by what takes seconds.
func TestABuildIsMeasuredByWhatWasNamed(t *testing.T) {
	for _, tt := range []struct {
		against string
		names   []string
		want    []string
	}{
		{"", nil, bench.Names(bench.All())},
		{"", []string{"idle_1000"}, []string{"idle_1000"}},
		{"before", nil, bench.Names(bench.Rivalled())},
		{"before", []string{"idle_1000"}, []string{"idle_1000"}},
	} {
		o := benchOptions{against: tt.against}
		if got, err := o.chooseBenchmarks(tt.names); err != nil || !slices.Equal(bench.Names(got), tt.want) {
			t.Errorf("against %q, named %q: got %q, %v, want %q", tt.against, tt.names, bench.Names(got), err, tt.want)
		}
	}
}

// A request is one to the processors of one unit: of several units with one name none is guessed.
func TestRequestsAreToOneUnit(t *testing.T) {
	var ask requestOptions
	ask.register(&cobra.Command{})
	if !ask.query.Sole {
		t.Error("a request may be one to several units")
	}
}
