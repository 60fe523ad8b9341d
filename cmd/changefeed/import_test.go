package main

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
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/terminal"
)

var errStop = errors.New("stopped by the test")

// importSite is an input file and a store to import it into.
type importSite struct {
	dir, file, rejects string
}

func newImportSite(t *testing.T, input []byte) importSite {
	t.Helper()
	s := importSite{dir: t.TempDir(), file: filepath.Join(t.TempDir(), "in.ndjson")}
	s.rejects = s.file + ".rejects"
	if err := os.WriteFile(s.file, input, 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// interrupt imports until so many records are finished, and then stops as a crash does:
// what was on its way may be there, and nothing more is saved after the mark.
func (s importSite) interrupt(t *testing.T, markAt, stopAt int) (m mark) {
	t.Helper()
	db, err := docstore.Open(s.dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	made, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "c", Paths: []string{"/outcode"}})
	if err != nil {
		t.Fatal(err)
	}
	c := stored(made, address{dir: s.dir, database: docstore.DefaultDatabase, container: "c"})
	in, err := os.Open(s.file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	at, _, err := openMark(in, c)
	if err != nil {
		t.Fatal(err)
	}
	records, err := newSplitter(in, place{})
	if err != nil {
		t.Fatal(err)
	}
	work := &tally{mark: at, show: newProgress(io.Discard, s.file, in), saved: time.Now().Add(time.Hour), rejects: rejectFile{path: s.rejects}} // it is saved at markAt only
	n := 0
	err = newLoader(c, 8).load(t.Context(), records, func(j *job) error {
		if n == stopAt {
			return errStop
		}
		if err := work.add(j); err != nil {
			return err
		}
		if n++; n == markAt {
			m = *work.mark
			return work.save()
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Fatalf("import: got error %v, want %v", err, errStop)
	}
	return m
}

// run runs import as its user does.
func (s importSite) run(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	root := rootCommand(new(bool))
	root.SetArgs(append([]string{"import", s.file, "--db", s.dir, "--container", "c"}, args...))
	root.SetOut(&o)
	root.SetErr(&e)
	err = root.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

// documents counts what is in the container.
func (s importSite) documents(t *testing.T) int {
	t.Helper()
	return strings.Count(command(t, "export", "--db", s.dir, "--container", "c"), "\n")
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
	out, errs, err := s.run(t)
	if err == nil || !strings.Contains(err.Error(), "100 of 1000 documents were refused") {
		t.Errorf("got error %v, want one that counts all rejects", err)
	}
	if want := fmt.Sprintf("going on behind line %d of an interrupted import", m.Place.Line); !strings.Contains(errs, want) {
		t.Errorf("got messages %q, want %q", errs, want)
	}
	if !strings.Contains(out, "imported 450 documents into c") || !strings.Contains(out, ", 450 before, rejected 100") {
		t.Errorf("got summary %q, want 450 documents, 450 before and 100 rejects", out)
	}
	if n := s.documents(t); n != 900 {
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
	if out, _, _ := s.run(t); !strings.Contains(out, "imported 900 documents") || strings.Contains(out, "before") {
		t.Errorf("after an import to the end: got %q, want all again", out)
	}
}

func TestAnImportBeginsAnew(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s importSite) (args []string){
		"when asked to": func(*testing.T, importSite) []string { return []string{"--restart"} },
		"when the input has changed": func(t *testing.T, s importSite) []string {
			if err := os.WriteFile(s.file, generated(201), 0o644); err != nil {
				t.Fatal(err)
			}
			return nil
		},
		"when the container is another one": func(t *testing.T, s importSite) []string {
			db, err := docstore.Open(s.dir, docstore.Options{})
			if err == nil {
				err = errors.Join(db.DeleteContainer(t.Context(), "c"), db.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			return []string{"--pk", "/outcode"}
		},
		"when the mark was cut short": func(t *testing.T, s importSite) []string {
			marks, err := filepath.Glob(filepath.Join(s.dir, marksFolder, "*.json"))
			if err != nil || len(marks) != 1 {
				t.Fatalf("got marks %v, %v, want one", marks, err)
			}
			if err := os.Truncate(marks[0], 10); err != nil {
				t.Fatal(err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newImportSite(t, generated(200))
			s.interrupt(t, 100, 150)
			out, errs, err := s.run(t, change(t, s)...)
			if err != nil || strings.Contains(errs, "going on") || !strings.Contains(out, "imported 20") {
				t.Errorf("got %q, %q, %v, want all documents imported", out, errs, err)
			}
			if n := s.documents(t); n < 200 {
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
	root := rootCommand(new(bool))
	root.SetArgs([]string{"import", s.file, "--db", s.dir, "--container", "c"})
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	err := root.ExecuteContext(ctx)
	if !errors.Is(err, errStop) || !strings.Contains(err.Error(), "done up to line 50, and the same command goes on from there") {
		t.Errorf("got error %v, want the cause and where it goes on", err)
	}
}

func TestDocumentsOfOneKeyAreWrittenInOrder(t *testing.T) {
	var input bytes.Buffer
	for i := range 2000 {
		fmt.Fprintf(&input, `{"id":"%d","outcode":"K%d"}`+"\n", i, i%7)
	}
	s := newImportSite(t, input.Bytes())
	if _, _, err := s.run(t, "--pk", "/outcode", "--ranges", "3"); err != nil {
		t.Fatal(err)
	}
	db, err := docstore.Open(s.dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := db.Container("c")
	if err != nil {
		t.Fatal(err)
	}
	documents, err := everything(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	last := map[changefeed.PartitionKey]int{}
	for _, d := range documents {
		var id int
		fmt.Sscan(d.ID, &id)
		if before, ok := last[d.PartitionKey]; ok && id < before {
			t.Fatalf("key %s: %d comes behind %d", d.PartitionKey, id, before)
		}
		last[d.PartitionKey] = id
	}
	if len(documents) != 2000 || len(last) != 7 {
		t.Errorf("got %d documents of %d keys, want 2000 of 7", len(documents), len(last))
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
	out, _, err := s.run(t, "--pk", "/outcode")
	if err == nil || !strings.Contains(out, "imported 2940 documents into c") || !strings.Contains(out, "rejected 60\n") {
		t.Errorf("got %q, %v, want all but the 60 bad ones", out, err)
	}
	if n := s.documents(t); n != 2940 {
		t.Errorf("got %d documents, want 2940", n)
	}
	kept, err := os.ReadFile(s.rejects)
	if n := strings.Count(string(kept), `"text":"{\"ttl\":-5,`); err != nil || n != 60 || strings.Count(string(kept), "\n") != 60 {
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
	records, err := newSplitter(bytes.NewReader(generated(10_000)), place{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = newLoader(stored(c, address{container: "c"}), 8).load(t.Context(), records, func(*job) error {
		if n++; n == 100 {
			return db.Close()
		}
		return nil
	})
	if !errors.Is(err, docstore.ErrClosed) || n >= 10_000 {
		t.Errorf("got error %v after %d records, want %v before the end", err, n, docstore.ErrClosed)
	}
}

func TestProgressTellsWhatThereIsToTell(t *testing.T) {
	narrowTerminal := wide(terminal.Narrow)
	for _, tt := range []struct {
		name string
		p    *progress
		want string
	}{
		{"before the first", &progress{name: "f", size: 100}, "f   0% 0 documents"},
		{"half way", &progress{name: "f", size: 1000, first: &state{0, 0, 0}, now: state{50, 2, 500}}, "f  50% 50 documents, 2 refused, 5 a second, 10s left"},
		{"after a resumption", &progress{name: "f", size: 1000, first: &state{40, 0, 400}, now: state{50, 0, 500}}, "f  50% 50 documents, 1 a second, 50s left"},
		{"pipe", &progress{name: "standard input", first: &state{}, now: state{imported: 30}}, "standard input 30 documents, 3 a second"},
		{"terminal", &progress{name: "f", size: 1000, Terminal: narrowTerminal, first: &state{}, now: state{50, 0, 500}}, "f [###############...............]  50% 50 documents, 5 a second, 10s left"},
	} {
		if got := tt.p.line(10 * time.Second); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTheBarLeavesNothingBehind(t *testing.T) {
	var out bytes.Buffer
	p := progress{w: &out, name: "f", size: 10, Terminal: wide(25), every: time.Hour}
	p.at(1, 0, 5)
	p.draw()
	p.say("line %d: bad", 3)
	p.draw()
	p.clear()
	want := clearLine + "f  50% 1 documents" + clearLine + "line 3: bad\n" + clearLine + "f  50% 1 documents" + clearLine
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
