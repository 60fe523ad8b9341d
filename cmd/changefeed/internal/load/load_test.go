package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var errStop = errors.New("stopped by the test")

// importSite is an input file, and a store to import it into.
type importSite struct {
	dir, file, rejects string
	db                 *docstore.DB
}

func newImportSite(t *testing.T, input []byte) importSite {
	t.Helper()
	s := importSite{dir: t.TempDir(), file: filepath.Join(t.TempDir(), "in.ndjson")}
	s.rejects = s.file + ".rejects"
	if err := os.WriteFile(s.file, input, 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.db, err = docstore.Open(s.dir, docstore.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.db.Check(), s.db.Close()); err != nil {
			t.Error(err)
		}
	})
	s.create(t)
	return s
}

func (s importSite) create(t *testing.T) {
	t.Helper()
	if _, err := s.db.CreateContainer(t.Context(), docstore.ContainerSpec{
		ID: "c", Paths: []string{"/outcode"},
		Ranges: 3,
	}); err != nil {
		t.Fatal(err)
	}
}

func (s importSite) container(t *testing.T) *place.Container {
	t.Helper()
	c, err := s.db.Container("c")
	if err != nil {
		t.Fatal(err)
	}
	return place.Stored(c, place.Address{Dir: s.dir, Database: docstore.DefaultDatabase, Container: "c"})
}

func (s importSite) open(t *testing.T) *os.File {
	t.Helper()
	in, err := os.Open(s.file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

// interrupt imports until so many records are finished, and then stops as a crash does: what was on its way may be
// there, and nothing more is saved after the mark.
func (s importSite) interrupt(t *testing.T, markAt, stopAt int) (m mark) {
	t.Helper()
	in, c := s.open(t), s.container(t)
	at, _, err := openMark(in, c)
	if err != nil {
		t.Fatal(err)
	}
	records, err := newSplitter(in, point{})
	if err != nil {
		t.Fatal(err)
	}
	// it is saved at markAt only
	work := &tally{
		mark: at, report: silent(), progress: newProgress(in, at), saved: time.Now().Add(time.Hour),
		rejects: rejectFile{path: s.rejects},
	}
	n := 0
	err = newLoader(c, 8).writeAll(t.Context(), records, func(j *job) error {
		if n == stopAt {
			return errStop
		}
		if err := work.add(j); err != nil {
			return err
		}
		if n++; n == markAt {
			m = *work.mark
			return work.saveMark()
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Fatalf("import: got error %v, want %v", err, errStop)
	}
	return m
}

// silent returns a report that nobody reads.
func silent() *report.Report { return report.New(report.Text, io.Discard) }

// run imports the file, and returns what became of it and what was said.
func (s importSite) run(ctx context.Context, t *testing.T, restart bool) (done Result, said string, err error) {
	t.Helper()
	var out bytes.Buffer
	in := s.open(t)
	got, err := Documents(ctx, in, s.container(t), &report.Report{Err: &out, Command: "import"},
		Options{Rejects: s.rejects, Writers: 256, Restart: restart})
	if got != nil {
		done = *got
		done.Seconds, done.Rate = 0, 0
	}
	return done, out.String(), err
}

// documents are those of the container; those of one key in the order in which they were written.
func (s importSite) documents(t *testing.T) (all []feed.Change) {
	t.Helper()
	from := feed.Position{Start: feed.FromBeginning()}
	for page, err := range changefeed.Pull(t.Context(), s.container(t).Source, feed.FullRange(), from,
		changefeed.PullOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Changes...)
	}
	return all
}

// generated are n small documents of many partition keys.
func generated(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"id": "%06d", "outcode": "K%d", "name": "Number %d", "rating": %d.50}`+"\n", i, i%97, i, i%6)
	}
	return b.Bytes()
}

// withBad are documents of which every tenth is bad.
func withBad(n int) []byte {
	var b bytes.Buffer
	for i, line := range bytes.SplitAfter(generated(n), []byte("\n"))[:n] {
		if i%10 == 9 {
			fmt.Fprintf(&b, "bad line %d\n", i+1)
			continue
		}
		b.Write(line)
	}
	return b.Bytes()
}

func TestAnImportThatWasInterruptedGoesOnWhereItStopped(t *testing.T) {
	s := newImportSite(t, withBad(1000))
	m := s.interrupt(t, 500, 700)
	done, said, err := s.run(t.Context(), t, false)
	if err == nil || !strings.Contains(err.Error(), "100 of 1,000 documents were refused") {
		t.Errorf("got error %v, want one that counts all rejects", err)
	}
	if want := fmt.Sprintf("going on after line %d of an interrupted import", m.Place.Line); !strings.Contains(said,
		want) {
		t.Errorf("said %q, want %q", said, want)
	}
	if want := (Result{Imported: 450, Before: 450, Rejected: 100, Rejects: report.Known(s.rejects)}); done != want {
		t.Errorf("got %+v, want %+v", done, want)
	}
	if n := len(s.documents(t)); n != 900 {
		t.Errorf("got %d documents, want 900", n)
	}
	kept, err := os.ReadFile(s.rejects)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(kept)), "\n")
	for i, line := range lines {
		if want := fmt.Sprintf(`"text":"bad line %d"`, 10*i+10); !strings.Contains(line, want) {
			t.Fatalf("reject %d is %s, want %s", i, line, want)
		}
	}
	if len(lines) != 100 {
		t.Errorf("got %d rejects, want 100", len(lines))
	}
	if done, _, _ := s.run(t.Context(), t, false); done.Imported != 900 || done.Before != 0 {
		t.Errorf("after an import to the end: got %+v, want all again", done)
	}
}

// Rejects of the first part may have been mended and removed when the import goes on.
func TestRejectsThatWereTakenAwayLeaveNoHole(t *testing.T) {
	s := newImportSite(t, withBad(1000))
	s.interrupt(t, 500, 700)
	if err := os.Remove(s.rejects); err != nil {
		t.Fatal(err)
	}
	if done, _, err := s.run(t.Context(), t, false); done.Before != 450 || done.Rejected != 100 {
		t.Fatalf("got %+v, %v, want an import that goes on", done, err)
	}
	kept, err := os.ReadFile(s.rejects)
	if first := `{"line":510,`; err != nil || !strings.HasPrefix(string(kept), first) ||
		bytes.Count(kept, []byte("\n")) != 50 {
		t.Errorf("got rejects %.100q, %v, want 50 that begin with %s", kept, err, first)
	}
}

// A device such as /dev/null takes rejects, and is there afterwards.
func TestADeviceTakesRejects(t *testing.T) {
	s := newImportSite(t, withBad(100))
	if err := os.Symlink(os.DevNull, s.rejects); err != nil {
		t.Skipf("the file system has no symbolic links: %v", err)
	}
	for range 2 {
		if done, _, err := s.run(t.Context(), t, false); done.Imported != 90 || done.Rejected != 10 {
			t.Errorf("got %+v, %v, want 90 documents and 10 rejects", done, err)
		}
	}
	if to, err := os.Readlink(s.rejects); err != nil || to != os.DevNull {
		t.Errorf("got %q, %v, want the device where it was", to, err)
	}
}

func TestAnImportBeginsAnew(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s importSite) (restart bool){
		"when asked to": func(*testing.T, importSite) bool { return true },
		"when the input has changed": func(t *testing.T, s importSite) bool {
			if err := os.WriteFile(s.file, generated(201), 0o644); err != nil {
				t.Fatal(err)
			}
			return false
		},
		"when the input was written again": func(t *testing.T, s importSite) bool {
			if err := os.Chtimes(s.file, time.Time{}, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			return false
		},
		"when the input was replaced by one of the same time": func(t *testing.T, s importSite) bool {
			before, err := os.Stat(s.file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.file, generated(201), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(s.file, time.Time{}, before.ModTime()); err != nil {
				t.Fatal(err)
			}
			return false
		},
		"when the container is another one": func(t *testing.T, s importSite) bool {
			if err := s.db.DeleteContainer(t.Context(), "c"); err != nil {
				t.Fatal(err)
			}
			s.create(t)
			return false
		},
		"when the mark was cut short": func(t *testing.T, s importSite) bool {
			marks, err := filepath.Glob(filepath.Join(s.dir, marksFolder, "*.json"))
			if err != nil || len(marks) != 1 {
				t.Fatalf("got marks %v, %v, want one", marks, err)
			}
			if err := os.Truncate(marks[0], 10); err != nil {
				t.Fatal(err)
			}
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newImportSite(t, generated(200))
			s.interrupt(t, 100, 150)
			done, said, err := s.run(t.Context(), t, change(t, s))
			if err != nil || strings.Contains(said, "going on") || done.Imported < 200 || done.Before != 0 {
				t.Errorf("got %+v, %q, %v, want all documents imported", done, said, err)
			}
			if n := len(s.documents(t)); n < 200 {
				t.Errorf("got %d documents, want all", n)
			}
		})
	}
}

func TestAnImportThatIsStoppedTellsWhatToDo(t *testing.T) {
	s := newImportSite(t, generated(100))
	s.interrupt(t, 50, 60)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStop)
	_, _, err := s.run(ctx, t, false)
	if !errors.Is(err, errStop) || !strings.Contains(err.Error(),
		"done up to line 50, and the same command goes on from there") {
		t.Errorf("got error %v, want the cause and where it goes on", err)
	}
	if done, said, err := s.run(t.Context(), t, false); err != nil || done.Before != 50 || done.Imported != 50 {
		t.Errorf("got %+v, %q, %v, want an import that goes on", done, said, err)
	}
}

// Nobody is sent to a place from which nothing goes on.
func TestWhatCannotGoOnPromisesNothing(t *testing.T) {
	pipe := stopped(errStop, &mark{Place: point{Offset: 5, Line: 2}})
	if !strings.HasSuffix(pipe.Error(), "done up to line 2, and the same command begins anew, which writes these again") {
		t.Errorf("got %q, want that all begins anew", pipe)
	}
	for _, m := range []*mark{{path: "in.mark"}, {}} {
		if err := stopped(errStop, m); err != errStop {
			t.Errorf("%+v: got %q, want the error alone", m, err)
		}
	}
	s := newImportSite(t, generated(100))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStop)
	if _, _, err := s.run(ctx, t, false); !errors.Is(err, errStop) || strings.Contains(err.Error(), "goes on") {
		t.Errorf("got %v, want the cause alone", err)
	}
	if marks, err := filepath.Glob(filepath.Join(s.dir, marksFolder, "*")); err != nil || len(marks) > 0 {
		t.Errorf("an import of nothing leaves %q, %v", marks, err)
	}
}

func TestDocumentsOfOneKeyAreWrittenInOrder(t *testing.T) {
	var input bytes.Buffer
	for i := range 2000 {
		fmt.Fprintf(&input, `{"id":"%d","outcode":"K%d"}`+"\n", i, i%7)
	}
	s := newImportSite(t, input.Bytes())
	if _, _, err := s.run(t.Context(), t, false); err != nil {
		t.Fatal(err)
	}
	documents := s.documents(t)
	last := map[feed.PartitionKey]int{}
	for _, d := range documents {
		var id int
		fmt.Sscan(d.ID, &id)
		if before, ok := last[d.PartitionKey]; ok && id < before {
			t.Fatalf("key %s: %d comes after %d", d.PartitionKey, id, before)
		}
		last[d.PartitionKey] = id
	}
	if len(documents) != 2000 || len(last) != 7 {
		t.Errorf("got %d documents of %d keys, want 2000 of 7", len(documents), len(last))
	}
}

// A single writer has documents of several keys waiting, and writes those of one key at a time.
func TestOneWriterWritesManyKeys(t *testing.T) {
	s := newImportSite(t, generated(500))
	in := s.open(t)
	done, err := Documents(t.Context(), in, s.container(t), silent(),
		Options{Rejects: s.rejects, Writers: 1})
	if err != nil || done.Imported != 500 || done.Rejected != 0 {
		t.Errorf("got %+v, %v, want all documents imported", done, err)
	}
	if n := len(s.documents(t)); n != 500 {
		t.Errorf("got %d documents, want 500", n)
	}
}

func TestARefusedDocumentTakesNoneOfItsCrowdWithIt(t *testing.T) {
	var input bytes.Buffer
	for i := range 3000 {
		ttl := 60
		if i%50 == 0 {
			ttl = -5
		}
		fmt.Fprintf(&input, `{"ttl":%d,"id":"%d","outcode":"one"}`+"\n", ttl, i)
	}
	s := newImportSite(t, input.Bytes())
	done, _, err := s.run(t.Context(), t, false)
	if want := (Result{Imported: 2940, Rejected: 60, Rejects: report.Known(s.rejects)}); err == nil || done != want {
		t.Errorf("got %+v, %v, want all but the 60 bad ones", done, err)
	}
	if n := len(s.documents(t)); n != 2940 {
		t.Errorf("got %d documents, want 2940", n)
	}
	kept, err := os.ReadFile(s.rejects)
	if n := strings.Count(string(kept), `"text":"{\"ttl\":-5,`); err != nil || n != 60 ||
		strings.Count(string(kept), "\n") != 60 {
		t.Errorf("got %d bad documents among the rejects, %v, want 60 and nothing else", n, err)
	}
}

func TestAFailureOfTheStoreEndsTheImport(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "c", Paths: []string{"/outcode"}})
	if err != nil {
		t.Fatal(err)
	}
	input := generated(30_000)
	records, err := newSplitter(bytes.NewReader(input), point{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = newLoader(place.Stored(c, place.Address{Container: "c"}), 8).writeAll(t.Context(), records, func(*job) error {
		if n++; n == 100 {
			return db.Close()
		}
		return nil
	})
	if !errors.Is(err, docstore.ErrClosed) || n >= 30_000 {
		t.Errorf("got error %v after %d records, want %v before the end", err, n, docstore.ErrClosed)
	}
}

// What comes after a failure is not done: the place that is kept would be behind what nobody has kept.
func TestNothingIsDoneAfterAFailure(t *testing.T) {
	s := newImportSite(t, nil)
	input := generated(30_000)
	records, err := newSplitter(bytes.NewReader(input), point{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = newLoader(s.container(t), 8).writeAll(t.Context(), records, func(*job) error {
		if n++; n == 100 {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) || n != 100 {
		t.Errorf("got %v after %d records, want %v after 100", err, n, errStop)
	}
	if records.at.Offset == int64(len(input)) {
		t.Errorf("all %d bytes are read, though the import has failed", len(input))
	}
}

// Documents that lack their key, and those with a bad one, are each a document, also when many come at once. An object
// counts as a missing key.
func TestKeysThatAreMissingOrBad(t *testing.T) {
	var input bytes.Buffer
	for i := range 300 {
		key := []string{``, `,"outcode":{"x":1}`, `,"outcode":1e999`}[i%3]
		fmt.Fprintf(&input, `{"id":"%d"%s}`+"\n", i, key)
	}
	s := newImportSite(t, input.Bytes())
	if done, _, err := s.run(t.Context(), t, false); err == nil || done.Imported != 200 || done.Rejected != 100 {
		t.Errorf("got %+v, %v, want those without a key imported, and the others refused", done, err)
	}
	for _, d := range s.documents(t) {
		if want := feed.Key(feed.Undefined); d.PartitionKey != want {
			t.Fatalf("document %s has the key %s, want %s", d.ID, d.PartitionKey, want)
		}
	}
}

// A document that another one keeps out by a unique key is refused, and ends nothing.
func TestADuplicateIsRefused(t *testing.T) {
	var input bytes.Buffer
	for i := range 40 {
		fmt.Fprintf(&input, `{"id":"%d","outcode":"K%d","mail":"%d"}`+"\n", i, i%20, i%20)
	}
	s := newImportSite(t, input.Bytes())
	if err := s.db.DeleteContainer(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	spec := docstore.ContainerSpec{ID: "c", Paths: []string{"/outcode"}, UniqueKeys: [][]string{{"/mail"}}}
	if _, err := s.db.CreateContainer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	for _, writers := range []int{1, 8} {
		in := s.open(t)
		o := Options{Rejects: s.rejects, Writers: writers}
		done, err := Documents(t.Context(), in, s.container(t), silent(), o)
		if err == nil || done.Imported != 20 || done.Rejected != 20 {
			t.Errorf("%d writers: got %+v, %v, want one of each two", writers, done, err)
		}
	}
}

// A container that asks for a pause gets it, and then the write. The end of the import does not wait for the pause.
func TestAPauseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, n := time.Now(), 0
		err := unthrottled(t.Context(), func() error {
			if n++; n < 4 {
				return fmt.Errorf("write: %w", &feed.ThrottledError{After: 2 * time.Second})
			}
			return errStop
		})
		if !errors.Is(err, errStop) || time.Since(begun) != 6*time.Second {
			t.Errorf("got %v after %v, want the outcome after three pauses", err, time.Since(begun))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errStop) })
		begun, n = time.Now(), 0
		err = unthrottled(ctx, func() error {
			if n++; n > 1 {
				return nil
			}
			return &feed.ThrottledError{After: time.Hour}
		})
		if !errors.Is(err, errStop) || time.Since(begun) != time.Second {
			t.Errorf("got %v after %v, want the end after a second", err, time.Since(begun))
		}
	})
}

// Half an input must not look like a whole one.
func TestAnInputThatCannotBeReadIsAnError(t *testing.T) {
	s := newImportSite(t, nil)
	records, err := newSplitter(io.MultiReader(bytes.NewReader(generated(10)), iotest.ErrReader(errStop)), point{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = newLoader(s.container(t), 8).writeAll(t.Context(), records, func(*job) error { n++; return nil })
	if !errors.Is(err, errStop) || n != 10 {
		t.Errorf("got %v after %d documents, want %v after 10", err, n, errStop)
	}
}

// A container has a mark of its own: an import into another one ends nothing but itself.
func TestEachContainerHasItsMark(t *testing.T) {
	s := newImportSite(t, generated(200))
	s.interrupt(t, 100, 150)
	other, err := s.db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "other", Paths: []string{"/outcode"}})
	if err != nil {
		t.Fatal(err)
	}
	in, to := s.open(t), place.Stored(other, place.Address{
		Dir: s.dir, Database: docstore.DefaultDatabase,
		Container: "other",
	})
	done, err := Documents(t.Context(), in, to, silent(),
		Options{Rejects: s.rejects, Writers: 8})
	if err != nil || done.Imported != 200 || done.Before != 0 {
		t.Errorf("into another container: got %+v, %v", done, err)
	}
	if done, _, err := s.run(t.Context(), t, false); err != nil || done.Before != 100 || done.Imported != 100 {
		t.Errorf("got %+v, %v, want an import that goes on", done, err)
	}
}

// Standard input is read from its beginning, also where it is a file: by its name, that could be another one tomorrow.
func TestStandardInputHasNoMark(t *testing.T) {
	s := newImportSite(t, generated(3))
	defer func(before *os.File) { os.Stdin = before }(os.Stdin)
	os.Stdin = s.open(t)
	if m, found, err := openMark(os.Stdin, s.container(t)); err != nil || found || m.path != "" {
		t.Errorf("got a mark in %q, %v, %v", m.path, found, err)
	}
}

// What is done is noted while the import goes on, for a crash, and shown.
func TestTheMarkMovesWithTheImport(t *testing.T) {
	s := newImportSite(t, generated(3))
	in, c := s.open(t), s.container(t)
	m, _, err := openMark(in, c)
	if err != nil {
		t.Fatal(err)
	}
	work := &tally{
		mark: m, report: silent(), progress: newProgress(in, m), saved: time.Now(),
		rejects: rejectFile{path: s.rejects},
	}
	for _, tt := range []struct {
		since time.Duration
		j     job
		saved int64
	}{
		{0, job{record: record{next: point{Offset: 10}}}, 0},
		{saveEvery, job{record: record{next: point{Offset: 20}}}, 20},
		{0, job{record: record{text: []byte("bad"), size: 3, next: point{Offset: 30}}, refusal: errStop}, 20},
	} {
		work.saved = time.Now().Add(-tt.since)
		if err := work.add(&tt.j); err != nil {
			t.Fatal(err)
		}
		if got := work.progress.state().Place; got != tt.j.next.Offset {
			t.Errorf("shown is %d, want %d", got, tt.j.next.Offset)
		}
		kept, found, err := openMark(in, c)
		if err != nil || found != (tt.saved > 0) || kept.Place.Offset != tt.saved {
			t.Errorf("at %d the mark is at %d, %v, %v, want %d", tt.j.next.Offset, kept.Place.Offset, found, err,
				tt.saved)
		}
	}
	info, err := in.Stat()
	if err != nil {
		t.Fatal(err)
	}
	want := report.State{Done: 2, Note: "1 refused", Place: 30, Size: info.Size()}
	if got := work.progress.state(); got != want {
		t.Errorf("shown is %+v, want %+v", got, want)
	}
}

// A reject file ends with its last reject, which says how much is missing of a text that is too long.
func TestARejectFileHasWhatWasRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rejects")
	if err := os.WriteFile(path, bytes.Repeat([]byte("old\n"), 100), 0o644); err != nil {
		t.Fatal(err)
	}
	f := rejectFile{path: path, size: 4}
	for _, size := range []int64{3, 9} {
		if err := f.addRecord(&job{
			record:  record{line: 1, text: []byte("bad"), size: size},
			refusal: errStop,
		}); err != nil {
			t.Fatal(err)
		}
	}
	want := "old\n" + `{"line":1,"error":"stopped by the test","text":"bad"}` + "\n" +
		`{"line":1,"error":"stopped by the test","text":"bad","bytes":9}` + "\n"
	text, err := os.ReadFile(path)
	if err := errors.Join(err, f.close()); err != nil || string(text) != want || f.size != int64(len(want)) {
		t.Errorf("got %q of %d bytes, %v, want %q", text, f.size, err, want)
	}
}
