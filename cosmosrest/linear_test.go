package cosmosrest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/millrace/changefeed/internal/proof/memnet"
)

// Each document over HTTP is a register with conditional writes: whatever its clients see
// must be what they could have seen had the requests come one after the other. Some answers
// are lost, some requests are on their way for long, and some come twice.

// demand is one request about a document.
type demand struct {
	doc, method string
	etag        string // If-Match
	value       int    // that it writes; each is written by one request only, or by its repeats
}

// heard is the answer; status 0 is none.
type heard struct {
	status int
	etag   string
	value  int
}

// register is a document as the checker has it. The ETag of a write whose answer was lost
// is "?" until somebody reads it.
type register struct {
	value int // 0 is no document
	etag  string
}

func registers() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byDoc := map[string][]porcupine.Operation{}
			for _, op := range history {
				doc := op.Input.(demand).doc
				byDoc[doc] = append(byDoc[doc], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range byDoc {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return register{} },
		Step: func(state, input, output any) (bool, any) {
			next, ok := state.(register).after(input.(demand), output.(heard))
			return ok, next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v %+v", input, output) },
	}
}

// after is the register after a request, and whether it can have given this answer.
func (r register) after(in demand, out heard) (register, bool) {
	exists := r.value != 0
	match := exists && (in.etag == r.etag || r.etag == "?")
	written := register{in.value, out.etag}
	switch {
	case out.status == 0 && in.method != http.MethodGet: // done here or, by another order, not
		return r.unknown(in), true
	case in.method == http.MethodGet && out.status == http.StatusOK:
		return register{out.value, out.etag}, exists && out.value == r.value && (out.etag == r.etag || r.etag == "?")
	case out.status == http.StatusNotFound:
		return r, !exists && in.method != http.MethodPost
	case in.method == http.MethodPost && out.status == http.StatusConflict:
		return r, exists
	case in.method == http.MethodPost && out.status == http.StatusCreated:
		return written, !exists
	case out.status == http.StatusPreconditionFailed:
		return r, exists && (in.etag != r.etag || r.etag == "?")
	case in.method == http.MethodPut && out.status == http.StatusOK:
		return written, match
	case in.method == http.MethodDelete && out.status == http.StatusNoContent:
		return register{}, match
	}
	return r, false
}

// unknown is the register after a write that was not answered. One that came to nothing
// is as one that came at the very end.
func (r register) unknown(in demand) register {
	switch exists := r.value != 0; {
	case in.method == http.MethodPost && !exists:
		return register{in.value, "?"}
	case in.method == http.MethodPost || !exists || in.etag != r.etag && r.etag != "?":
		return r
	case in.method == http.MethodDelete:
		return register{}
	}
	return register{in.value, "?"}
}

// network is how requests travel, and what came of them.
type network struct {
	t      *testing.T
	client *http.Client
	ticks  atomic.Int64
	values atomic.Int64

	mu      sync.Mutex
	rng     *rand.Rand
	history []porcupine.Operation
	late    sync.WaitGroup
}

func (n *network) draw(below int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rng.IntN(below)
}

// send has one request travel. What is not answered has no end.
func (n *network) send(client int, in demand) heard {
	begin := n.ticks.Add(1)
	repeat, lost := n.draw(12) == 0 && in.method != http.MethodGet, n.draw(12) == 0
	if repeat {
		n.late.Go(func() {
			time.Sleep(time.Duration(n.draw(2000)) * time.Millisecond)
			n.ask(in)
		})
		n.note(client, in, heard{}, begin, forEver)
	}
	var out heard
	if lost {
		n.late.Go(func() { n.travel(); n.ask(in) })
		time.Sleep(time.Duration(n.draw(100)) * time.Millisecond)
		n.note(client, in, out, begin, forEver)
		return out
	}
	n.travel()
	out = n.ask(in)
	n.travel()
	n.note(client, in, out, begin, n.ticks.Add(1))
	return out
}

const forEver = 1 << 62

// travel is the way to the server, or back.
func (n *network) travel() { time.Sleep(time.Duration(n.draw(40)) * time.Millisecond) }

func (n *network) note(client int, in demand, out heard, begin, end int64) {
	if out.status == 0 && in.method == http.MethodGet {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.history = append(n.history, porcupine.Operation{
		ClientId: client, Input: in, Output: out, Call: begin,
		Return: end,
	})
}

// ask sends the request over HTTP.
func (n *network) ask(in demand) (out heard) {
	path, body := "/dbs/db/colls/c/docs", io.Reader(http.NoBody)
	if in.method != http.MethodPost {
		path += "/" + in.doc
	}
	if in.value != 0 {
		body = strings.NewReader(fmt.Sprintf(`{"id":%q,"pk":"p","value":%d}`, in.doc, in.value))
	}
	r, err := http.NewRequestWithContext(n.t.Context(), in.method, "http://memory"+path, body)
	if err != nil {
		n.t.Error(err)
		return out
	}
	r.Header.Set("x-ms-version", "2020-07-15")
	r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("x-ms-documentdb-partitionkey", `["p"]`)
	if in.etag != "" {
		r.Header.Set("If-Match", in.etag)
	}
	r.Header.Set("Authorization", sign(n.t, wellKnownKey, r))
	resp, err := n.client.Do(r)
	if err != nil {
		n.t.Error(err)
		return out
	}
	defer resp.Body.Close()
	out.status = resp.StatusCode
	if out.status == http.StatusOK || out.status == http.StatusCreated {
		var doc struct {
			ETag  string `json:"_etag"`
			Value int    `json:"value"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
			n.t.Error(err)
		}
		out.etag, out.value = doc.ETag, doc.Value
	}
	return out
}

// work is one client: it reads, and writes upon what it has read or written.
func (n *network) work(client, requests int) {
	docs := []string{"a", "b"}
	known := map[string]string{} // ETags, which may be old
	for range requests {
		in := demand{doc: docs[n.draw(len(docs))]}
		in.etag = known[in.doc]
		switch k := n.draw(10); {
		case k < 4 || in.etag == "" && k < 7:
			in.method, in.etag = http.MethodGet, ""
		case in.etag == "":
			in.method, in.value = http.MethodPost, int(n.values.Add(1))
		case k < 9:
			in.method, in.value = http.MethodPut, int(n.values.Add(1))
		default:
			in.method = http.MethodDelete
		}
		if out := n.send(client, in); out.etag != "" || out.status == http.StatusNotFound ||
			in.method == http.MethodDelete {
			known[in.doc] = out.etag
		}
	}
}

// observe has clients at work on two documents of a server, and tells what they saw.
func observe(t *testing.T, seed uint64, spoil func(http.Handler) http.Handler) (history []porcupine.Operation) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newContainer(t, Options{})
		l := memnet.Listen()
		web := &http.Server{Handler: spoil(w)}
		transport := &http.Transport{DialContext: l.DialContext, MaxIdleConnsPerHost: 100}
		var serving, clients sync.WaitGroup
		serving.Go(func() {
			if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("serve: %v", err)
			}
		})
		n := &network{t: t, client: &http.Client{Transport: transport}, rng: rand.New(rand.NewPCG(seed, 1))}
		for client := range 4 {
			clients.Go(func() { n.work(client, 25) })
		}
		clients.Wait()
		n.late.Wait()
		for _, doc := range []string{"a", "b"} {
			n.note(4, demand{doc: doc, method: http.MethodGet}, n.ask(demand{doc: doc, method: http.MethodGet}),
				n.ticks.Add(1), n.ticks.Add(1))
		}
		transport.CloseIdleConnections()
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
		history = n.history
	})
	return history
}

// honest leaves a server as it is.
func honest(h http.Handler) http.Handler { return h }

var (
	linearSeeds = flag.Uint64("linear.seeds", 12, "histories of conditional writes")
	linearFrom  = flag.Uint64("linear.from", 0, "the first of them")
)

// TestConditionalWritesAreLinearizable has clients write two documents under their ETags.
func TestConditionalWritesAreLinearizable(t *testing.T) {
	lost := 0
	for n := range *linearSeeds {
		seed := *linearFrom + n
		history := observe(t, seed, honest)
		for _, op := range history {
			if op.Return == forEver {
				lost++
			}
		}
		if !porcupine.CheckOperations(registers(), history) {
			t.Errorf("seed %d: no order of the requests explains the answers: %s", seed, story(history))
		}
	}
	if lost < 3*int(*linearSeeds) {
		t.Errorf("%d requests without an answer in %d histories, too few for this test", lost, *linearSeeds)
	}
}

// TestTheCheckOfConditionalWritesCanFail has it look at servers that are not as they should be.
func TestTheCheckOfConditionalWritesCanFail(t *testing.T) {
	for name, spoil := range map[string]func(http.Handler) http.Handler{
		"If-Match is ignored": altered(func(r *http.Request) { r.Header.Del("If-Match") }),
		"a create overwrites": altered(func(r *http.Request) {
			if r.Method == http.MethodPost {
				r.Header.Set("x-ms-documentdb-is-upsert", "true")
			}
		}),
		"a read is old":                    lagging,
		"a write that was done is refused": denying,
	} {
		t.Run(name, func(t *testing.T) {
			found := false
			for seed := uint64(0); seed < *linearSeeds && !found; seed++ {
				found = !porcupine.CheckOperations(registers(), observe(t, seed, spoil))
			}
			if !found {
				t.Errorf("%d histories explain themselves", *linearSeeds)
			}
		})
	}
}

func altered(change func(*http.Request)) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { change(r); h.ServeHTTP(w, r) })
	}
}

// lagging now and then answers a read late, with what it found before.
func lagging(h http.Handler) http.Handler {
	var n atomic.Int64
	seen := &sync.Map{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if old, ok := seen.Load(r.URL.Path); ok && r.Method == http.MethodGet && n.Add(1)%4 == 0 {
			_, _ = w.Write(old.([]byte))
			return
		}
		kept := &keeping{ResponseWriter: w}
		h.ServeHTTP(kept, r)
		if r.Method == http.MethodGet && kept.status == http.StatusOK {
			seen.Store(r.URL.Path, slices.Clone(kept.body))
		}
	})
}

// denying now and then answers a write that was done with a refusal.
func denying(h http.Handler) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut || n.Add(1)%4 > 0 {
			h.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusPreconditionFailed)
	})
}

type keeping struct {
	http.ResponseWriter
	status int
	body   []byte
}

// WriteHeader keeps the status.
func (k *keeping) WriteHeader(status int) { k.status = status; k.ResponseWriter.WriteHeader(status) }

// Write keeps the body.
func (k *keeping) Write(b []byte) (int, error) {
	k.body = append(k.body, b...)
	return k.ResponseWriter.Write(b)
}

// story is a history in the order of its beginnings.
func story(history []porcupine.Operation) string {
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var text strings.Builder
	for _, op := range history {
		fmt.Fprintf(&text, "\n%d-%d client %d: %+v %+v", op.Call, op.Return, op.ClientId, op.Input, op.Output)
	}
	return text.String()
}
