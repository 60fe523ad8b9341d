package cosmosrest

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
)

// A full disk is one line, however many writes it refuses, and one line when there is room again: after a write,
// because reads go on all the time.
func TestAFullDiskIsInTheLogOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w, _ := newContainer(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		lines := func() int { return strings.Count(log.String(), "\n") }
		for round := range 2 {
			log.Reset()
			for range 50 {
				rec := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(t.Context(), "POST", "/dbs/db/colls/c/docs", nil)
				newCall(w.Server, rec, r).sendError(fmt.Errorf("write: %w", docstore.ErrDiskFull))
				if rec.Code != http.StatusServiceUnavailable {
					t.Fatalf("answered %d", rec.Code)
				}
				time.Sleep(time.Second)
			}
			if lines() != 1 || !strings.Contains(log.String(), "level=ERROR msg=\"the disk is full") {
				t.Errorf("round %d: 50 refused writes are in the log as %s", round, &log)
			}
			log.Reset()
			w.do(t, "GET", "/dbs/db/colls/c", nil, "").want(t, http.StatusOK)
			w.do(t, "POST", "/dbs/db/colls/c/docs", map[string]string{
				"Content-Type": "application/query+json", "X-Ms-Documentdb-Isquery": "True",
				"X-Ms-Documentdb-Query-Enablecrosspartition": "True",
			}, `{"query":"SELECT * FROM c"}`).want(t, http.StatusOK)
			if lines() != 0 {
				t.Errorf("reads and queries show no room, and the log says %s", &log)
			}
			for i := range 3 {
				w.do(t, "POST", "/dbs", nil, fmt.Sprintf(`{"id":"more-%d-%d"}`, round, i)).want(t, http.StatusCreated)
			}
			if lines() != 1 || !strings.Contains(log.String(), "the disk has room again") ||
				!strings.Contains(log.String(), "after=50s") {
				t.Errorf("after writes the log says %s, want one line that there is room again after 50s", &log)
			}
		}
	})
}

// A delete succeeds on a full disk too, because it frees space: it does not show that there is room for other writes.
func TestADeleteOnAFullDiskShowsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w, _ := newContainer(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for _, id := range []string{"old", "older"} {
			w.do(t, "POST", "/dbs", nil, fmt.Sprintf(`{"id":%q}`, id)).want(t, http.StatusCreated)
		}
		isFull := true
		w.failures.checkRoom = func() error {
			if isFull {
				return docstore.ErrDiskFull
			}
			return nil
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/dbs/db/colls/c/docs", nil)
		newCall(w.Server, httptest.NewRecorder(), r).sendError(docstore.ErrDiskFull)
		for _, id := range []string{"old", "older"} {
			w.do(t, "DELETE", "/dbs/"+id, nil, "").want(t, http.StatusNoContent)
			if said := strings.Contains(log.String(), "the disk has room again"); said == isFull {
				t.Errorf("the disk is full: %v, and the log says %s", isFull, &log)
			}
			isFull = false
		}
	})
}

// A sender with a wrong key is in the log at once, and then once a minute with the number of refused requests.
func TestARefusedSenderIsInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := newWorld(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		w.key = "d3Jvbmc="
		for range 40 {
			w.do(t, "GET", "/dbs", nil, "").want(t, http.StatusUnauthorized)
			time.Sleep(2 * time.Second)
		}
		said := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(said) != 2 {
			t.Fatalf("40 requests in 80 s are in the log as %s", &log)
		}
		for _, part := range []string{"level=WARN", "request refused", "client=192.0.2.1 ", "status=401", "path=/dbs"} {
			if !strings.Contains(said[0], part) {
				t.Errorf("the log lacks %s: %s", part, said[0])
			}
		}
		if !strings.Contains(said[1], "repeated=29") {
			t.Errorf("the log does not say how many were refused: %s", said[1])
		}
	})
}
