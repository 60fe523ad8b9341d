package fleettest

import (
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

const localKills = 6

// KillLocally runs the recipe on its local store, into which the recipe itself writes, and kills it again and again,
// often just after a line about its work. Then nobody writes any more: the test serves the store, and one more process
// does the rest there, with the same arguments and the last ones. KillLocally returns that process and the store.
// Leases of a killed process expire after a second.
func KillLocally(t *testing.T, folder, store, container string, args []string, last ...string) (*Fleet, *docstore.DB) {
	t.Helper()
	f := &Fleet{folder: folder, args: append([]string{"-expiration", "1s"}, args...), wrote: make(chan *Process)}
	f.Start(t)
	for kill := range localKills {
		pause(t.Context(), rand.N(700*time.Millisecond))
		if kill%2 == 0 {
			select {
			case <-f.wrote:
			case <-time.After(3 * time.Second): // the leases of the process before have not expired yet
			}
		}
		if kill == localKills-1 {
			f.end(t)
			break
		}
		f.Kill(t, f.Running[0])
	}
	db, err := docstore.Open(filepath.Join(folder, store), docstore.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := cosmosrest.New(db, cosmosrest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	f.args = append(append(f.args, "-from", server.URL+"/"+container), last...)
	f.Start(t)
	return f, db
}

// end kills the only process, and starts none in its place.
func (f *Fleet) end(t *testing.T) {
	t.Helper()
	p := f.Running[0]
	killed := p.command.Process.Kill()
	err := p.command.Wait()
	if killed != nil || p.command.ProcessState.Exited() {
		t.Fatalf("a process ended by itself: %v, %v\n%s", killed, err, p)
	}
	f.Running = nil
}
