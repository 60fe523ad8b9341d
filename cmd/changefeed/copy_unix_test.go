//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// copyKills is how often the copying process is killed.
const copyKills = 24

// TestACopyOutlivesKills copies a container into one with another partition key, over a server, while a writer creates,
// replaces, moves and deletes items, and the copying process is killed with kill -9 again and again. At the end, the
// target has exactly the items of the source.
func TestACopyOutlivesKills(t *testing.T) {
	if detector.On {
		t.Skip("what works here are processes of their own, in which the race detector sees nothing")
	}
	t.Parallel()
	server := cosmostest.NewTestServer(t)
	source := makeOrders(t, server.DB)
	w := &orderWriter{t: t, c: source, random: rand.New(rand.NewPCG(1, 2))}
	for range 3000 {
		w.write()
	}
	var writing sync.WaitGroup
	var over atomic.Bool
	writing.Go(func() {
		for !over.Load() {
			w.write()
			time.Sleep(time.Millisecond) // the pace of the writer, and no wait for anything
		}
	})
	args := []string{
		"copy", server.URL + "/shop/orders", server.URL + "/shop/by-customer", "--create", "/customer",
		"--expiration", "1s", "--steady", "200ms", "-o", "json",
	}
	for i := range copyKills {
		killCopy(t, args, i)
	}
	over.Store(true)
	writing.Wait()
	end := exec.Command("changefeed", append(args, "--until-caught-up")...)
	if out, err := end.CombinedOutput(); err != nil {
		t.Fatalf("the last copy: %v\n%s", err, out)
	}
	target, err := server.DB.Container("shop/by-customer")
	if err != nil {
		t.Fatal(err)
	}
	compareOrders(t, documentsOf(t, source), documentsOf(t, target))
	if moved := w.moved; moved < 20 {
		t.Errorf("only %d items have moved", moved)
	}
	compare := exec.Command("changefeed", "compare", args[1], args[2], "-q")
	if out, err := compare.CombinedOutput(); err != nil {
		t.Errorf("compare: %v\n%s", err, out)
	}
}

// killCopy starts a copy, and kills it after a time that grows, so that all stages of its life are met.
func killCopy(t *testing.T, args []string, i int) {
	t.Helper()
	cmd := exec.Command("changefeed", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if i%3 == 0 { // within its work: it has told how far it is
		line := make([]byte, 1)
		_, _ = out.Read(line)
	}
	time.Sleep(rand.N(300 * time.Millisecond)) // kill -9 is to come at a random moment
	if err := cmd.Process.Kill(); err != nil {
		t.Fatalf("the copy has ended by itself: %v\n%s", err, said.String())
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != -1 {
		t.Fatalf("the copy has ended by itself with %d: %s", code, said.String())
	}
}

// makeOrders makes a container that retains all versions.
func makeOrders(t *testing.T, db *docstore.DB) *docstore.Container {
	t.Helper()
	if _, err := db.CreateDatabase(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "shop", ID: "orders", Paths: []string{"/city"}, Ranges: 2, Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// orderWriter writes random orders.
type orderWriter struct {
	t      *testing.T
	c      *docstore.Container
	random *rand.Rand
	next   int
	moved  int
}

// write creates, replaces, moves or deletes an item. The big number must not lose a digit.
func (w *orderWriter) write() {
	id := w.random.IntN(w.next/2 + 1)
	city := fmt.Sprintf("city %d", id%7)
	what := w.random.IntN(10)
	var err error
	switch {
	case what == 0:
		err = w.c.Delete(context.Background(), feed.Key(city), fmt.Sprint(id), "")
		if err != nil && strings.Contains(err.Error(), feed.ErrNotFound.Error()) {
			err = nil
		}
	case what == 1:
		w.moved++
		_, err = w.c.Upsert(context.Background(), orderBody(id, city, w.random.IntN(50), w.next))
	default:
		if what < 8 {
			id, w.next = w.next, w.next+1
			city = fmt.Sprintf("city %d", id%7)
		}
		_, err = w.c.Upsert(context.Background(), orderBody(id, city, id%50, w.next))
	}
	if err != nil {
		w.t.Errorf("write: %v", err)
	}
}

// orderBody is a document of an order.
func orderBody(id int, city string, customer, n int) []byte {
	return fmt.Appendf(nil, `{"id":"%d","city":%q,"customer":"c%d","n":%d,"big":9007199254740993,"text":"é\u00e9"}`, id,
		city, customer, n)
}

// documentsOf returns the documents of a container without system properties, by their ids.
func documentsOf(t *testing.T, c *docstore.Container) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for item, err := range c.Items(t.Context(), feed.FullRange(), "") {
		if err != nil {
			t.Fatal(err)
		}
		body, err := changeline.WithoutSystem(item.Body)
		if err != nil {
			t.Fatal(err)
		}
		all[item.ID] = append(all[item.ID], string(body))
	}
	return all
}

// compareOrders compares documents byte for byte, independently of the command.
func compareOrders(t *testing.T, source, target map[string][]string) {
	t.Helper()
	differences := 0
	for id, want := range source {
		if got := target[id]; len(got) != 1 || got[0] != want[0] {
			differences++
			t.Logf("%s: source %s, target %s", id, want, got)
		}
	}
	for id, got := range target {
		if len(source[id]) == 0 {
			differences++
			t.Logf("%s: surplus %s", id, got)
		}
	}
	if differences > 0 || len(source) == 0 {
		t.Fatalf("%d of %d documents differ", differences, len(source))
	}
}

// TestTheCommandsOfCopysPageRun runs them in sequence in an empty folder, without the waits.
func TestTheCommandsOfCopysPageRun(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/recipes/copy.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, block := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		script.WriteString(block[1])
	}
	said := shellOut(t, strings.ReplaceAll(script.String(), "--steady 1s", "--steady 0s"))
	for _, want := range []string{
		"ready for the cut-over", "2 documents of the source, 2 of the target: no difference",
		"0 documents of the source, 0 of the target: no difference", "hard deletes and expiries are not seen",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the commands do not say %q:\n%s", want, said)
		}
	}
}

// TestACopyTellsPrograms checks the lines of -o json, and that a copy which is ended in order ends with 0.
func TestACopyTellsPrograms(t *testing.T) {
	t.Parallel()
	server := cosmostest.NewTestServer(t)
	w := &orderWriter{t: t, c: makeOrders(t, server.DB), random: rand.New(rand.NewPCG(3, 4))}
	for range 200 {
		w.write()
	}
	cmd := exec.Command("changefeed", "copy", server.URL+"/shop/orders", server.URL+"/shop/copy", "--create", "/id",
		"--steady", "100ms", "-o", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	phases := map[string]bool{}
	for d := json.NewDecoder(out); d.More(); {
		var line struct {
			Kind, Phase string
			Handled     int64
			Share       *float64
		}
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		phases[line.Phase] = true
		isWhole := line.Handled > 0 && line.Share != nil && *line.Share == 1
		if line.Kind != "copy" || line.Phase == "ready" && !isWhole {
			t.Errorf("line %+v", line)
		}
		if line.Phase == "ready" {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !phases["ready"] || !phases["ended"] {
		t.Errorf("the copy has ended with %v, phases %v", err, phases)
	}
}
