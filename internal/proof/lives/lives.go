// Package lives kills a process at every point of its work, for tests of what must hold wherever it ends.
//
// A life is a child process that works on a store on disk until it kills itself with SIGKILL: the first time it comes
// to the first point, the first time it comes to the second one, and so on; in the next round the second time, or a
// later one. The last life dies at no point and finishes. Then the test looks at what they have left.
//
// Lives are in virtual time, which the n-th begins n hours late, so that the leases of the one before have expired.
package lives

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
)

var rounds = flag.Int("lives.rounds", 4, "how often a life ends at each point of a crash test")

// The environment of a life.
const (
	dirVariable    = "CHANGEFEED_LIFE_DIR"
	numberVariable = "CHANGEFEED_LIFE" // from 1
	pointVariable  = "CHANGEFEED_LIFE_POINT"
	timesVariable  = "CHANGEFEED_LIFE_TIMES" // how often it comes to the point
)

// A child says on standard output how it ended.
const (
	died  = "died "
	lived = "lived on"
)

const childTimeout = time.Minute

// Death kills the process when it has come to a point so often.
type Death struct {
	point string
	left  atomic.Int64
}

// At is called where the process comes to a point. It does not return if it dies there.
func (d *Death) At(point string) {
	if point == d.point && d.left.Add(-1) == 0 {
		fmt.Fprintln(os.Stdout, died+point)
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {} // until it has
	}
}

// Life is one life.
type Life struct {
	*Death
	Number int // from 1
	DB     *docstore.DB
}

// Container opens a container of the store, which the first life makes.
func (l Life) Container(t *testing.T, spec docstore.ContainerSpec) *docstore.Container {
	t.Helper()
	c, err := l.DB.Container(spec.ID)
	if err != nil {
		c, err = l.DB.CreateContainer(t.Context(), spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Live runs live if this process is a life, and else skips the test. At its end the store must be sound.
func Live(t *testing.T, live func(*testing.T, Life)) {
	n, _ := strconv.Atoi(os.Getenv(numberVariable))
	if n == 0 {
		t.Skip("it is for the test that kills processes")
	}
	times, _ := strconv.Atoi(os.Getenv(timesVariable))
	d := &Death{point: os.Getenv(pointVariable)}
	d.left.Store(int64(times))
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Duration(n) * time.Hour)
		db, err := docstore.Open(os.Getenv(dirVariable), docstore.Options{CacheBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		live(t, Life{d, n, db})
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	fmt.Fprintln(os.Stdout, lived)
}

// Kill has TestLife of this test binary, which calls [Live], die at each point in each round, and live on once. In a
// round a life comes to its point as often as times says. It returns the store that they have left, and how many lives
// there were.
func Kill(t *testing.T, points []string, times func(round int) int) (db *docstore.DB, lives int) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	deaths := map[string]int{}
	lives = *rounds*len(points) + 1
	for n := range lives {
		point := points[n%len(points)]
		if n == lives-1 {
			point = "at no point"
		}
		out, err := begin(dir, n+1, point, times(n/len(points)))
		switch {
		case strings.Contains(out, died+point):
			deaths[point]++
		case err != nil || !strings.Contains(out, lived):
			t.Fatalf("life %d: %v\n%s", n+1, err, out)
		}
	}
	for _, point := range points {
		if deaths[point] < min(2, *rounds) {
			t.Errorf("died %s: %d of %d: the test shows less than it should", point, deaths[point], *rounds)
		}
	}
	db, err := docstore.Open(dir, docstore.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, lives
}

// begin runs a life to its end, and returns its output.
func begin(dir string, number int, point string, times int) (string, error) {
	child := exec.Command(os.Args[0], "-test.run=^TestLife$", "-test.v", "-test.timeout="+childTimeout.String())
	child.Env = append(os.Environ(), dirVariable+"="+dir, pointVariable+"="+point,
		fmt.Sprint(numberVariable, "=", number), fmt.Sprint(timesVariable, "=", times))
	out, err := child.CombinedOutput()
	return string(out), err
}
