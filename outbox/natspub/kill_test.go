package natspub_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/natspub"
)

var kills = flag.Int("kills", 3, "how often a process with an embedded server is killed")

const (
	killDir  = "NATSPUB_DIR"  // of the process that is killed
	killFrom = "NATSPUB_FROM" // the first event of each key that it publishes
	killKeys = 8
)

func TestMain(m *testing.M) {
	flag.Parse()
	if dir := os.Getenv(killDir); dir != "" {
		fmt.Println(publishUntilKilled(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// publishUntilKilled publishes events of several keys, and prints the key and number of each
// that was acknowledged. The server syncs rarely: a kill loses nothing that was written.
func publishUntilKilled(dir string) error {
	to, err := natspub.Embedded(context.Background(), dir, natspub.Options{SyncEvery: 2 * time.Minute})
	if err != nil {
		return err
	}
	from, err := strconv.Atoi(os.Getenv(killFrom))
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for k := range killKeys {
		wg.Go(func() {
			for n := from; err == nil; n += 2 {
				key := strconv.Itoa(k)
				_, err := to.Publish(context.Background(), []outbox.Message{numbered(key, n), numbered(key, n+1)})
				fmt.Printf("%s %d %v.\n", key, n+1, err)
			}
		})
	}
	wg.Wait()
	return nil
}

func numbered(key string, n int) outbox.Message { return event(key, fmt.Sprintf("%s-%d", key, n)) }

// TestWhatWasAcknowledgedSurvivesKill kills a process with an embedded server in mid-publish. The next one begins some
// events before the last acknowledged ones, as a relay does: the stream has each event once, in order.
func TestWhatWasAcknowledgedSurvivesKill(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, from := t.TempDir(), 1
	acknowledged := map[string]int{}
	for round := range *kills {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), killDir+"="+dir, killFrom+"="+strconv.Itoa(from))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			key, rest, _ := strings.Cut(lines.Text(), " ")
			number, ok := strings.CutSuffix(rest, " <nil>.")
			last, err := strconv.Atoi(number)
			if !ok || err != nil { // the last line may be cut
				continue
			}
			acknowledged[key] = max(acknowledged[key], last)
			if n == 300+211*(round%5) {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Fatalf("round %d: %v", round, err)
		}
		lasts := make([]int, 0, killKeys)
		for k := range killKeys {
			lasts = append(lasts, acknowledged[strconv.Itoa(k)])
		}
		from = max(slices.Min(lasts)-10, 1)
	}
	p := embedded(t, dir, natspub.Options{})
	got := map[string][]string{}
	for _, m := range received(t, p.Conn(), natspub.DefaultStream) {
		got[m.Key] = append(got[m.Key], m.ID)
	}
	for key, last := range acknowledged {
		if len(got[key]) < last {
			t.Errorf("key %s: the stream has %d events, and %d were acknowledged", key, len(got[key]), last)
		}
		for i, id := range got[key] {
			if want := fmt.Sprintf("%s-%d", key, i+1); id != want {
				t.Errorf("key %s: event %d of the stream is %s, want %s", key, i+1, id, want)
				break
			}
		}
	}
}
