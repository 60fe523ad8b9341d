package docstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var crashRounds = flag.Int("crash.rounds", 5, "how often the crash test kills the store")

// crashDir tells the test binary that it is the child, which writes until it is killed.
const crashDir = "DOCSTORE_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := writeForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if flag.Parse(); flag.Lookup("test.bench").Value.String() == "" {
		debug.SetGCPercent(400) // stores of tests are small, and collected too often
	}
	os.Exit(m.Run())
}

const crashWriters = 8

// writeForEver writes documents and prints what was acknowledged. Each writer has its
// own documents, so that what it was told last is what must be there; now and then the
// layout changes below them.
func writeForEver(dir string) error {
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		return err
	}
	c, err := db.Container("c")
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var out sync.Mutex
	say := func(line string) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(line + ".")
	}
	start := int(time.Now().UnixNano() >> 10)
	for w := range crashWriters {
		wg.Go(func() {
			for v := start; ; v++ {
				id := fmt.Sprintf("w%d-%d", w, rand.IntN(20))
				if err := crashWrite(c, id, v, say); err != nil {
					say("error " + err.Error())
				}
			}
		})
	}
	wg.Go(func() {
		for {
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			reshape(c)
		}
	})
	wg.Wait()
	return nil
}

// crashWrite does one random write. It says what it will do before, so that a write
// whose end nobody saw is known to be either done or not.
func crashWrite(c *docstore.Container, id string, v int, say func(string)) error {
	ctx := context.Background()
	pk := feed.Key(id)
	doc := func(id string) []byte {
		pad := strings.Repeat("x", rand.IntN(3000))
		return fmt.Appendf(nil, `{"id":%q,"pk":%q,"v":%d,"pad":%q}`, id, strings.TrimSuffix(id, "+"), v, pad)
	}
	var what string
	var write func() error
	switch rand.IntN(10) {
	case 0:
		what = fmt.Sprintf("%s=0", id)
		write = func() error {
			if err := c.Delete(ctx, pk, id, ""); !errors.Is(err, feed.ErrNotFound) {
				return err
			}
			return nil
		}
	case 1, 2: // a pair that must stay together
		what = fmt.Sprintf("%s=%d %s+=%d", id, v, id, v)
		write = func() error {
			_, err := c.Commit(ctx, pk, []feed.Write{{Body: doc(id)}, {Body: doc(id + "+")}})
			return err
		}
	default:
		what = fmt.Sprintf("%s=%d", id, v)
		write = func() error {
			_, err := c.Upsert(ctx, doc(id))
			return err
		}
	}
	say("will " + what)
	err := write()
	if err == nil {
		say("done " + what)
	}
	return err
}

// reshape splits a partition or merges two.
func reshape(c *docstore.Container) {
	ctx := context.Background()
	parts, err := c.Partitions(ctx)
	if err != nil {
		return
	}
	i := rand.IntN(len(parts))
	if len(parts) > 3 {
		i = min(i, len(parts)-2)
		_, _ = c.Merge(ctx, parts[i].ID, parts[i+1].ID)
		return
	}
	_, _ = c.Split(ctx, parts[i].ID)
}

// TestAcknowledgedWritesSurviveKill kills a writing process again and again.
func TestAcknowledgedWritesSurviveKill(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	container(t, db, docstore.ContainerSpec{ID: "c", Retention: 2 * time.Second, UniqueKeys: [][]string{{"/id"}}})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	e := expected{done: map[string]int{}, will: map[string]int{}}
	for round := range *crashRounds {
		n := e.runAndKill(t, dir, time.Duration(100+rand.IntN(300))*time.Millisecond)
		t.Logf("round %d: %d writes acknowledged", round, n)
		e.verify(t, dir)
		if t.Failed() {
			return
		}
	}
}

// expected is what must be in the store: versions by id, 0 for none.
type expected struct {
	done, will map[string]int
}

// runAndKill lets a child write for a while, kills it, and notes what it said.
func (e *expected) runAndKill(t *testing.T, dir string, d time.Duration) (n int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var timer *time.Timer
	for lines.Scan() {
		if timer == nil { // it has opened the store
			timer = time.AfterFunc(d, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
		}
		line, whole := strings.CutSuffix(lines.Text(), ".")
		f := strings.Fields(line)
		switch {
		case !whole:
		case f[0] == "error":
			t.Errorf("child: %s", line)
		case f[0] == "will":
			e.note(t, f[1:], func(id string, v int) { e.will[id] = v })
		case f[0] == "done":
			n++
			e.note(t, f[1:], func(id string, v int) {
				e.done[id] = v
				delete(e.will, id)
			})
		}
	}
	_ = cmd.Wait() // killed
	return n
}

func (e *expected) note(t *testing.T, pairs []string, f func(id string, v int)) {
	t.Helper()
	for _, pair := range pairs {
		id, text, _ := strings.Cut(pair, "=")
		v, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		f(id, v)
	}
}

// verify compares the store with what the child said.
func (e *expected) verify(t *testing.T, dir string) {
	t.Helper()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := db.Check(); err != nil {
		t.Error(err)
	}
	c, err := db.Container("c")
	if err != nil {
		t.Fatal(err)
	}
	for id, v := range e.will {
		got := version(t, c, id)
		if got != v && got != e.done[id] {
			t.Errorf("item %s has %d: want %d, or %d, whose end nobody saw", id, got, e.done[id], v)
		}
		if other := strings.TrimSuffix(id, "+"); other != id && (got == v) != (version(t, c, other) == v) {
			t.Errorf("half of the pair %s was stored", id)
		}
		e.done[id] = got
	}
	clear(e.will)
	for id, v := range e.done {
		if got := version(t, c, id); got != v {
			t.Errorf("item %s has %d: want %d", id, got, v)
		}
	}
	seen := map[string]int{}
	parts, _ := c.Partitions(t.Context())
	for _, p := range parts {
		got, _ := drain(t, c, p.Range, feed.At("0"), feed.ReadOptions{})
		for _, ch := range got {
			seen[ch.ID] = version(t, c, ch.ID)
		}
	}
	maps.DeleteFunc(e.done, func(_ string, v int) bool { return v == 0 })
	if !maps.Equal(seen, e.done) {
		t.Errorf("feed has %v, want %v", seen, e.done)
	}
}

// version is the version of a stored item; 0 for none.
func version(t *testing.T, c *docstore.Container, id string) int {
	t.Helper()
	it, err := c.Item(t.Context(), feed.Key(strings.TrimSuffix(id, "+")), id)
	if errors.Is(err, feed.ErrNotFound) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ V int }
	if err := json.Unmarshal(it.Body, &d); err != nil {
		t.Fatal(err)
	}
	return d.V
}
