package deadletters_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// crashPath tells the test binary that it is the child, which parks letters until it is killed.
const crashPath = "DEADLETTERS_CRASH_PATH"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashPath); path != "" {
		fmt.Fprintln(os.Stderr, parkForEver(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// parkForEver parks letters with growing LSNs, removes every third, and prints what was
// acknowledged.
func parkForEver(path string) error {
	ctx := context.Background()
	b, err := deadletters.File(path, "mailer")
	if err != nil {
		return err
	}
	last := int64(0)
	for l, err := range b.Letters(ctx, "") {
		if err != nil {
			return err
		}
		last = max(last, l.Change.LSN)
	}
	for lsn := last + 1; ; lsn++ {
		l := parked(feed.Key("London"), lsn)
		l.Change.Body = fmt.Appendf(nil, `{"id":"a","pad":%q}`, strings.Repeat("x", int(lsn%7)*1000))
		if err := b.Put(ctx, l); err != nil {
			return err
		}
		fmt.Printf("put %d.\n", lsn)
		if lsn%3 > 0 {
			continue
		}
		fmt.Printf("removing %d.\n", lsn-1)
		if err := b.Remove(ctx, l.Change.PartitionKey, fmt.Sprint(lsn-1, ".0")); err != nil {
			return err
		}
		fmt.Printf("removed %d.\n", lsn-1)
	}
}

// Whoever is told that a letter is parked has it, however the process ends.
func TestAcknowledgedLettersSurviveKill(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "letters.ndjson")
	must, may := map[string]bool{}, map[string]bool{}
	for round := range 6 {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), crashPath+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == 5+11*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			verb, lsn, _ := strings.Cut(strings.TrimSuffix(lines.Text(), "."), " ")
			id := lsn + ".0"
			switch verb {
			case "put":
				must[id] = true
			case "removing":
				delete(must, id)
				may[id] = true
			case "removed":
				delete(may, id)
			}
		}
		_ = cmd.Wait() // was killed
		got, _ := idsIn(t, path)
		for id := range must {
			if !slices.Contains(got, id) {
				t.Fatalf("round %d: letter %s was acknowledged and is gone", round, id)
			}
		}
		if most := len(must) + len(may) + 1; len(got) > most { // one that was not acknowledged
			t.Fatalf("round %d: %d letters, want at most %d", round, len(got), most)
		}
		must, may = map[string]bool{}, map[string]bool{}
		for _, id := range got {
			must[id] = true
		}
	}
}

// idsIn opens a file, which puts it in order, and gives the ids of its letters and how much
// was torn.
func idsIn(t *testing.T, path string) ([]string, int64) {
	t.Helper()
	b := openFile(t, path)
	got := ids(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return got, b.Torn()
}

// written is a file with four letters of two keys, of which the second is removed.
func written(t *testing.T) (path string, text []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "letters.ndjson")
	b := openFile(t, path)
	for lsn := range int64(4) {
		if err := b.Put(t.Context(), parked(feed.Key("London", lsn%2), lsn+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Remove(t.Context(), feed.Key("London", 1), "2.0"); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, text
}

func overwrite(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A crash leaves the beginning of a line, which was not acknowledged.
func TestALineThatACrashInterruptedIsCutOff(t *testing.T) {
	path, text := written(t)
	last := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	for end := last; end <= len(text); end++ {
		overwrite(t, path, text[:end])
		want, torn := []string{"1.0", "3.0", "2.0", "4.0"}, int64(end-last)
		if end >= len(text)-1 { // all of it, perhaps without the line break
			want, torn = []string{"1.0", "3.0", "4.0"}, 0
		}
		if got := readIDs(t, path); !slices.Equal(got, want) {
			t.Fatalf("cut at %d: read while a processor may have it: %v, want %v", end, got, want)
		}
		if got, cut := idsIn(t, path); !slices.Equal(got, want) || cut != torn {
			t.Fatalf("cut at %d: %v and %d bytes torn, want %v and %d", end, got, cut, want, torn)
		}
		b := openFile(t, path) // and what comes after it begins a line
		if err := b.Put(t.Context(), parked(feed.Key("Paris"), 9)); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if got, cut := idsIn(t, path); !slices.Equal(got, append(want, "9.0")) || cut != 0 {
			t.Fatalf("cut at %d, and one more: %v, %d bytes torn", end, got, cut)
		}
	}
}

// The rest of a long line that a crash has interrupted must not stay behind a shorter line.
func TestAShortLineAfterALongTornOneIsTheLast(t *testing.T) {
	path, text := written(t)
	long := parked(feed.Key("Paris"), 9)
	long.Change.Body = fmt.Appendf(nil, `{"id":"a","pad":%q}`, strings.Repeat("x", 10_000))
	b := openFile(t, path)
	if err := errors.Join(b.Put(t.Context(), long), b.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, path, whole[:len(whole)-100])
	b = openFile(t, path)
	if b.Torn() == 0 {
		t.Error("nothing is torn: the test shows nothing")
	}
	// a line of 100 bytes
	if err := errors.Join(b.Remove(t.Context(), feed.Key("London", 0), "1.0"), b.Close()); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(path); err != nil || len(now) > len(text)+200 {
		t.Errorf("%d bytes, %v, want the %d before and a short line", len(now), err, len(text))
	}
	if got, torn := idsIn(t, path); !slices.Equal(got, []string{"3.0", "4.0"}) || torn != 0 {
		t.Errorf("letters are %v, %d bytes torn", got, torn)
	}
}

// Whoever is told that a letter is parked, or removed, finds it so after a power loss.
func TestAcknowledgedLettersSurviveAPowerLoss(t *testing.T) {
	disk := deadletters.OnDisk(t)
	path := filepath.Join(t.TempDir(), "letters.ndjson")
	after := filepath.Join(t.TempDir(), "after.ndjson")
	left := func(of string, want ...string) {
		t.Helper()
		overwrite(t, after, disk[of])
		if got := readIDs(t, after); !slices.Equal(got, want) {
			t.Errorf("after a power loss: %v, want %v", got, want)
		}
	}
	b := openFile(t, path)
	for lsn := range int64(3) {
		if err := b.Put(t.Context(), parked(feed.Key("London"), lsn+1)); err != nil {
			t.Fatal(err)
		}
	}
	left(path, "1.0", "2.0", "3.0")
	for _, id := range []string{"1.0", "3.0"} {
		if err := b.Remove(t.Context(), feed.Key("London"), id); err != nil {
			t.Fatal(err)
		}
	}
	left(path, "2.0")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = openFile(t, path) // is written anew
	left(path+".new", "2.0")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// readIDs reads the ids of a file that a processor may have.
func readIDs(t *testing.T, path string) []string {
	t.Helper()
	ids, err := salvage(t, path)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// salvage reads the ids of a file up to an error.
func salvage(t *testing.T, path string) (ids []string, failed error) {
	for l, err := range deadletters.ReadFile(t.Context(), path, "mailer") {
		if failed = err; err == nil {
			ids = append(ids, l.ID)
		}
	}
	return ids, failed
}

// A path that was given by mistake costs nobody their file, nor its last line.
func TestAFileOfSomethingElseStaysAsItIs(t *testing.T) {
	for _, text := range []string{
		`{"settings":{"important":true}}`, `{"id":"7","key":["London"]}`, `{"id":"7"} and more`, `{"settings":`,
		`secret`, "{\"id\":\"a\x00", "a\nb\n",
	} {
		path := filepath.Join(t.TempDir(), "settings.json")
		overwrite(t, path, []byte(text))
		if _, err := deadletters.File(path, "mailer"); !errors.Is(err, deadletters.ErrDamaged) ||
			!strings.Contains(err.Error(), "line 1: ") {
			t.Errorf("%q: %v, want damage of line 1", text, err)
		}
		if got, err := salvage(t, path); !errors.Is(err, deadletters.ErrDamaged) || len(got) > 0 {
			t.Errorf("%q: read %q, %v", text, got, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%q is %q now, %v", text, now, err)
		}
	}
}

// A device takes letters and keeps none; a directory keeps nothing but the lock.
func TestLettersWantARegularFile(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"link":      func(path string) error { return os.Symlink(os.DevNull, path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			if err := create(path); err != nil && name == "link" {
				t.Skipf("this machine makes no symbolic link: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			if _, err := deadletters.File(path, "mailer"); !errors.Is(err, feed.ErrBadRequest) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %s refused", err, path)
			}
			if _, err := os.Stat(path + ".lock"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("lock of %s: %v", path, err)
			}
			if _, err := salvage(t, path); !errors.Is(err, feed.ErrBadRequest) {
				t.Errorf("read %s: %v", path, err)
			}
		})
	}
}

// One damaged line takes no other letter with it.
func TestADamagedFileGivesWhatCanBeRead(t *testing.T) {
	path, text := written(t)
	lines := bytes.SplitAfter(text, []byte("\n"))
	for _, n := range [][]int{{0}, {1, 3}, {4}} {
		damaged := slices.Clone(lines)
		for _, i := range n {
			damaged[i] = bytes.Replace(lines[i], []byte("0"), []byte("9"), 1)
		}
		overwrite(t, path, bytes.Join(damaged, nil))
		want := map[int][]string{0: {"3.0", "4.0"}, 1: {"1.0", "3.0"}, 4: {"1.0", "3.0", "2.0", "4.0"}}[n[0]]
		got, err := salvage(t, path)
		if !errors.Is(err, deadletters.ErrDamaged) ||
			!strings.Contains(err.Error(), fmt.Sprintf("line %d: ", n[0]+1)) || !slices.Equal(got, want) {
			t.Errorf("lines %d: %v, %v, want %v", n, got, err, want)
		}
		if more := "(the first of 2 such lines)"; len(n) > 1 && !strings.HasSuffix(fmt.Sprint(err), more) {
			t.Errorf("lines %d: %v, want it to end %s", n, err, more)
		}
		if _, err := deadletters.File(path, "mailer"); !errors.Is(err, deadletters.ErrDamaged) {
			t.Errorf("lines %d: the file is opened, %v", n, err)
		}
	}
}

// An editor, or git, may end lines as its system does: each is as it was written all the same.
func TestLinesMayEndAsOnWindows(t *testing.T) {
	path, text := written(t)
	windows := bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	for _, cut := range []int{0, 1, 2} { // of the last line break
		overwrite(t, path, windows[:len(windows)-cut])
		if got, torn := idsIn(t, path); !slices.Equal(got, []string{"1.0", "3.0", "4.0"}) || torn != 0 {
			t.Errorf("without %d: %v, %d bytes torn", cut, got, torn)
		}
		b := openFile(t, path)
		if err := errors.Join(b.Put(t.Context(), parked(feed.Key("Paris"), 9)), b.Close()); err != nil {
			t.Fatal(err)
		}
		if got := readIDs(t, path); !slices.Equal(got, []string{"1.0", "3.0", "4.0", "9.0"}) {
			t.Errorf("without %d, and one more: %v", cut, got)
		}
	}
}

// Damage is an error that names the line, or is torn and said, and is never another letter.
func TestNoDamageOfAFileIsSilent(t *testing.T) {
	path, text := written(t)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := 0; i < len(text); i += detector.Rounds(1, 7) {
		for _, bit := range []byte{1 << (i % 8), 'a' ^ '\n'} {
			if _, err := f.WriteAt([]byte{text[i] ^ bit}, int64(i)); err != nil {
				t.Fatal(err)
			}
			b, err := deadletters.File(path, "mailer")
			line := 1 + bytes.Count(text[:i], []byte("\n"))
			switch {
			case err != nil && (!errors.Is(err, deadletters.ErrDamaged) ||
				!strings.Contains(err.Error(), fmt.Sprintf("line %d: ", line))):
				t.Fatalf("byte %d ^ %#x: %v, want damage of line %d", i, bit, err, line)
			case err == nil && (i < len(text)-1 || b.Torn() == 0):
				t.Fatalf("byte %d of %d ^ %#x: no error, %d bytes torn", i, len(text), bit, b.Torn())
			case err == nil:
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.WriteAt(text[i:i+1], int64(i)); err != nil {
				t.Fatal(err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, text) {
				t.Fatalf("byte %d: opening a damaged file has changed it, %v", i, err)
			}
		}
	}
}

func TestAFileHasOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "letters.ndjson")
	b := openFile(t, path)
	if _, err := deadletters.File(path, "other"); !errors.Is(err, deadletters.ErrInUse) ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("second box of a file: %v, want %q", err, deadletters.ErrInUse)
	}
	if err := b.Put(t.Context(), parked(feed.Key("London"), 1)); err != nil {
		t.Fatal(err)
	}
	if got := readIDs(t, path); !slices.Equal(got, []string{"1.0"}) {
		t.Errorf("letters of a file in use are %v", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), parked(feed.Key("London"), 2)); err == nil {
		t.Error("a closed box takes a letter")
	}
	openFile(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v, want it for its owner only", info.Mode(), err)
	}
}

// A file is written anew when most of it is dead, with the letters of all processors.
func TestAFileIsCompactedWhenMostOfItIsDead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "letters.ndjson")
	other, err := deadletters.File(path, "other")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Put(t.Context(), parked(feed.Key("London"), 1)), other.Close()); err != nil {
		t.Fatal(err)
	}
	b := openFile(t, path)
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	one := size()
	for lsn := range int64(20) {
		if err := b.Put(t.Context(), parked(feed.Key("London"), 20-lsn)); err != nil {
			t.Fatal(err)
		}
	}
	for lsn := range int64(18) {
		if err := b.Remove(t.Context(), feed.Key("London"), fmt.Sprint(20-lsn, ".0")); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	before := size()
	// longer than what is left
	overwrite(t, path+".new", bytes.Repeat([]byte("what a crash has left of a compaction\n"), 100))
	b = openFile(t, path)
	after := size()
	if got := ids(t, b); !slices.Equal(got, []string{"1.0", "2.0"}) || b.Torn() != 0 {
		t.Errorf("after compaction: %v, %d bytes torn", got, b.Torn())
	}
	if err := errors.Join(b.Put(t.Context(), parked(feed.Key("London"), 21)), b.Remove(t.Context(), feed.Key("London"),
		"21.0"), b.Close()); err != nil {
		t.Fatal(err)
	}
	if after > 4*one || before < 10*one {
		t.Errorf("compaction made %d bytes of %d, with lines of %d", after, before, one)
	}
	if got, _ := idsIn(t, path); !slices.Equal(got, []string{"1.0", "2.0"}) {
		t.Errorf("compacted, and opened again: %v", got)
	}
	other, err = deadletters.File(path, "other")
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(t, other); !slices.Equal(got, []string{"1.0"}) {
		t.Errorf("letters of the other processor: %v", got)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
}

// A redrive removes letters that others may have removed before it, however often: the file does not grow by them.
func TestALetterThatIsGoneIsRemovedForNothing(t *testing.T) {
	path, text := written(t)
	b := openFile(t, path)
	for _, id := range []string{"2.0", "2.0", "9.0"} {
		if err := b.Remove(t.Context(), feed.Key("London", 1), id); err != nil {
			t.Error(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
		t.Errorf("the file has %d bytes, %v, and had %d", len(now), err, len(text))
	}
}

// A caller who has gone believes that nothing was written.
func TestNothingIsWrittenForACallerWhoHasGone(t *testing.T) {
	path, text := written(t)
	b := openFile(t, path)
	ended, end := context.WithCancel(t.Context())
	end()
	for lsn := range int64(40) { // of two things that are ready, select takes any
		if err := b.Put(ended, parked(feed.Key("London"), lsn+10)); !errors.Is(err, context.Canceled) {
			t.Errorf("Put of an ended context: %v", err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
		t.Errorf("the file has %d bytes, %v, and had %d", len(now), err, len(text))
	}
}

// Letters may be many and large: whoever interrupts a list of them does not wait for the rest, and hears that it is no
// end.
func TestAListOfAFileThatIsInterruptedEndsWithAnError(t *testing.T) {
	path, _ := written(t)
	for name, list := range map[string]func(ctx context.Context) iter.Seq2[feed.DeadLetter, error]{
		"open": func(ctx context.Context) iter.Seq2[feed.DeadLetter, error] {
			return openFile(t, path).Letters(ctx, "")
		},
		"by all": func(ctx context.Context) iter.Seq2[feed.DeadLetter, error] {
			return deadletters.ReadFile(ctx, path, "mailer")
		},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		n := 0
		var failed error
		for _, err := range list(ctx) {
			interrupt()
			if failed = err; err == nil {
				n++
			}
		}
		interrupt()
		if n != 1 || !errors.Is(failed, context.Canceled) {
			t.Errorf("%s: %d letters, %v", name, n, failed)
		}
	}
}

// A write that failed leaves nothing behind that the next one could be confused with.
func TestAFileGoesOnAfterAWriteThatFailed(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no device that is full")
	}
	path := filepath.Join(t.TempDir(), "letters.ndjson")
	b := openFile(t, path)
	if err := b.Put(t.Context(), parked(feed.Key("London"), 1)); err != nil {
		t.Fatal(err)
	}
	restore := deadletters.FillDisk(t, b)
	if err := b.Put(t.Context(), parked(feed.Key("London"), 2)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Put on a full disk: %v, want an error that names the file", err)
	}
	restore()
	if err := b.Put(t.Context(), parked(feed.Key("London"), 3)); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, b); !slices.Equal(got, []string{"1.0", "3.0"}) {
		t.Errorf("letters are %v", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got, torn := idsIn(t, path); !slices.Equal(got, []string{"1.0", "3.0"}) || torn != 0 {
		t.Errorf("letters are %v, %d bytes torn", got, torn)
	}
}
