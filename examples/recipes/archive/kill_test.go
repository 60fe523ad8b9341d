package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/examples/recipes/internal/fleettest"
	"github.com/millrace/changefeed/feed"
)

const kills = 21

// truth counts the changes by what they are: "7/12" is the version of item 7 that write 12 has written, and "7/delete"
// counts its deletes.
type truth struct {
	container *docstore.Container
	changes   map[string]int
	writes    int
}

func (w *truth) write(ctx context.Context) error {
	id := fmt.Sprint(rand.IntN(50))
	w.writes++
	w.changes[fmt.Sprint(id, "/", w.writes)]++
	writes := []feed.Write{{Body: fmt.Appendf(nil, `{"id":%q,"n":%d}`, id, w.writes)}}
	if rand.IntN(3) == 0 { // in the same transaction, with the same LSN
		w.changes[id+"/delete"]++
		writes = append(writes, feed.Write{Op: feed.WriteDelete, ID: id})
	}
	_, err := w.container.Commit(ctx, feed.Key(id), writes)
	return err
}

// read counts the changes in the files of a format.
func read(folder, format string) (changes map[string]int, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "archive-files", "date=*", "r*."+format))
	if err != nil {
		return nil, err
	}
	changes = map[string]int{}
	for _, file := range files {
		rows, err := load(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		day := strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "date=")
		for _, r := range rows {
			what := "delete"
			if r.Op != feed.OpDelete.String() {
				var item struct{ N int }
				if err := json.Unmarshal([]byte(r.Body), &item); err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
				what = strconv.Itoa(item.N)
			}
			if got := r.Time.UTC().Format(time.DateOnly); got != day {
				return nil, fmt.Errorf("%s has a change of %s", file, got)
			}
			changes[r.ID+"/"+what]++
		}
	}
	return changes, nil
}

func load(file string) (rows []row, err error) {
	if strings.HasSuffix(file, ".parquet") {
		return parquet.ReadFile[row](file)
	}
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		var r row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, err
}

func (w *truth) check(folder, format string) error {
	got, err := read(folder, format)
	if err != nil || maps.Equal(got, w.changes) {
		return err
	}
	for what, n := range w.changes {
		if got[what] != n {
			return fmt.Errorf("change %s is %d times in the %s files, and happened %d times", what, got[what], format, n)
		}
	}
	return fmt.Errorf("%d different changes in the %s files, and %d happened", len(got), format, len(w.changes))
}

func TestMain(m *testing.M) { fleettest.RunAs(m, main) }

func TestEachChangeIsInOneFileAlthoughProcessesAreKilled(t *testing.T) {
	folder := t.TempDir()
	server := fleettest.StartAccount(t, docstore.ContainerSpec{
		ID: "orders", Paths: []string{"/id"}, Ranges: 3, Retention: time.Hour,
	})
	orders, err := server.DB.Container("shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	w := &truth{container: orders, changes: map[string]int{}}
	parquet := fleettest.Against(server, "shop/orders", folder, "-wait", "100ms")
	ndjson := fleettest.Against(server, "shop/orders", folder, "-wait", "100ms", "-ndjson")
	begin(t, parquet)
	begin(t, ndjson)
	ndjson.Start(t)
	parquet.KillMany(t, kills, w.write, func(kill int) {
		switch {
		case kill == kills/3:
			parquet.Freeze(t)
		case kill == kills/2:
			fleettest.Split(t, orders)
		case kill%3 == 0:
			killOne(t, ndjson)
		}
	})
	parquet.Eventually(t, func() error { return w.check(folder, "parquet") })
	ndjson.Eventually(t, func() error { return w.check(folder, "ndjson") })
	parquet.Stop(t)
	ndjson.Stop(t)
	for _, format := range []string{"parquet", "ndjson"} {
		if err := w.check(folder, format); err != nil {
			t.Error("after the stop:", err)
		}
	}
	t.Logf("%d writes, %d kills", w.writes, kills)
	t.Run("DuckDB", func(t *testing.T) { w.query(t, folder) })
}

// query reads the files with DuckDB, if Python has it.
func (w *truth) query(t *testing.T, folder string) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 in the PATH")
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import duckdb").CombinedOutput(); err != nil {
		t.Skipf("python3 has no module duckdb: %s", out)
	}
	want := 0
	for _, n := range w.changes {
		want += n
	}
	for _, table := range []string{
		"read_parquet('archive-files/date=*/r*.parquet')",
		"read_json('archive-files/date=*/r*.ndjson', format = 'newline_delimited')",
	} {
		sql := "SELECT count(*), count(DISTINCT (id, op, lsn, body)), sum((op = 'delete')::INT), min(date)::TEXT FROM " + table
		script := "import duckdb; print(duckdb.sql(\"" + sql + "\").fetchall()[0])"
		query := exec.CommandContext(t.Context(), python, "-c", script)
		query.Dir = folder
		out, err := query.CombinedOutput()
		deletes := 0
		for what, n := range w.changes {
			if strings.HasSuffix(what, "/delete") {
				deletes += n
			}
		}
		if !strings.HasPrefix(string(out), fmt.Sprintf("(%d, %d, %d, '20", want, want, deletes)) || err != nil {
			t.Errorf("%s: %s, %v; %d changes, %d of them deletes, should be there", sql, out, err, want, deletes)
		}
	}
}

func TestItRunsOnALocalStore(t *testing.T) {
	folder := t.TempDir()
	for format, args := range map[string][]string{"parquet": {"-wait", "0s"}, "ndjson": {"-wait", "0s", "-ndjson"}} {
		said := fleettest.RunLocally(t, folder, args...)
		got, err := read(folder, format)
		if !strings.Contains(said, "changes in date=") || err != nil || len(got) == 0 {
			t.Errorf("%d changes, %v: %s", len(got), err, said)
		}
	}
}

// begin starts a process of a new unit, and waits until the unit has begun: later changes are not missed.
func begin(t *testing.T, f *fleettest.Fleet) {
	t.Helper()
	f.Start(t)
	f.Eventually(t, func() error {
		if text := f.Running[0].String(); !strings.Contains(text, "the unit is new") {
			return fmt.Errorf("the unit has not begun: %q", text)
		}
		return nil
	})
}

// killOne kills one of the processes, and starts another one.
func killOne(t *testing.T, f *fleettest.Fleet) {
	t.Helper()
	f.Kill(t, f.Running[rand.IntN(len(f.Running))])
}

func TestTheFilesHaveTheLocalStoreAfterKills(t *testing.T) {
	folder := t.TempDir()
	all, db := fleettest.KillLocally(t, folder, "archive-data", "shop/orders", []string{"-wait", "100ms"})
	orders, err := db.Container("shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	all.Eventually(t, func() error {
		last, times, err := newest(folder)
		if err != nil || len(times) == 0 {
			return fmt.Errorf("%d changes in the files, %w", len(times), err)
		}
		begun := int64(math.MaxInt64) // what is older was written before the unit began
		for what, n := range times {
			begun = min(begun, what.LSN)
			if n > 1 {
				t.Fatalf("%+v is %d times in the files", what, n)
			}
		}
		live := 0
		for it, err := range orders.Items(t.Context(), feed.FullRange(), "") {
			if err != nil {
				return err
			}
			if it.LSN < begun {
				continue
			}
			live++
			if r := last[it.ID]; r.LSN != it.LSN || r.Op == feed.OpDelete.String() {
				return fmt.Errorf("the last row of item %s is %+v, and the store has LSN %d", it.ID, r, it.LSN)
			}
		}
		for id, r := range last {
			if r.Op != feed.OpDelete.String() {
				live--
			} else if _, err := orders.Item(t.Context(), feed.Key(id), id); !errors.Is(err, feed.ErrNotFound) {
				return fmt.Errorf("item %s is deleted in the files, and in the store: %w", id, err)
			}
		}
		if live != 0 {
			return fmt.Errorf("the store has %d more items than the files", live)
		}
		return nil
	})
	all.Stop(t)
}

// newest returns the last row of each item in the files, and how often each change is there. A transaction creates or
// replaces an item once and deletes it once, so LSN, item and kind tell all changes apart.
func newest(folder string) (last map[string]row, times map[row]int, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "archive-files", "date=*", "r*.parquet"))
	if err != nil {
		return nil, nil, err
	}
	last, times = map[string]row{}, map[row]int{}
	for _, file := range files {
		rows, err := load(file)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, r := range rows {
			if r.LSN >= last[r.ID].LSN {
				last[r.ID] = r
			}
			times[row{LSN: r.LSN, Op: r.Op, ID: r.ID}]++
		}
	}
	return last, times, nil
}
