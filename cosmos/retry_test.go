package cosmos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/feed"
)

// An account is a transport that plays an account with a container of one partition, and
// gives what trouble says to requests for items.
type account struct {
	mu      sync.Mutex
	regions string // the locations in the account's answer
	trouble func(r *http.Request, n int) (*http.Response, error)
	asked   []string // hosts of the requests for items
	account int      // how often the account was read
	log     []*http.Request
}

const (
	noRegions   = ``
	twoRegions  = `"writableLocations":[{"name":"North","databaseAccountEndpoint":"https://n.example/"}],"readableLocations":[{"name":"North","databaseAccountEndpoint":"https://n.example/"},{"name":"West Europe","databaseAccountEndpoint":"https://w.example/"}]`
	westFirst   = `"writableLocations":[{"name":"North","databaseAccountEndpoint":"https://n.example/"}],"readableLocations":[{"name":"West Europe","databaseAccountEndpoint":"https://w.example/"},{"name":"North","databaseAccountEndpoint":"https://n.example/"}]`
	multiWrites = `"enableMultipleWriteLocations":true,"writableLocations":[{"name":"North","databaseAccountEndpoint":"https://n.example/"},{"name":"West Europe","databaseAccountEndpoint":"https://w.example/"}]`
)

// transporter is a function that is a transport.
type transporter func(r *http.Request) (*http.Response, error)

func (f transporter) Do(r *http.Request) (*http.Response, error) { return f(r) }

// say is an answer.
func say(status int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func (a *account) Do(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.log = append(a.log, r); {
	case r.URL.Path == "/":
		a.account++
		return say(200, "{"+a.regions+"}"), nil
	case strings.HasSuffix(r.URL.Path, "/pkranges"):
		if r.Header.Get("If-None-Match") != "" {
			return say(304, "", "etag", "1"), nil
		}
		return say(200, `{"PartitionKeyRanges":[{"id":"0","minInclusive":"","maxExclusive":"FF"}]}`, "etag", "1"), nil
	case strings.HasSuffix(r.URL.Path, "/docs"):
		a.asked = append(a.asked, strings.TrimSuffix(r.URL.Host, ".example"))
		resp, err := a.trouble(r, len(a.asked))
		if resp == nil && err == nil {
			resp = say(304, "", "etag", `"9"`)
			if r.Method == "POST" {
				resp = say(200, `[{"statusCode":201,"eTag":"\"e\"","resourceBody":{}}]`, "lsn", "9")
			}
		}
		return resp, err
	}
	return say(200, `{"_rid":"AAAAAAAAAAA=","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`), nil
}

// open opens the container; what is dead for a request does not answer.
func (a *account) open(t *testing.T, o cosmos.Options, dead ...func(r *http.Request) bool) *cosmos.Container {
	t.Helper()
	o.Transport = transporter(func(r *http.Request) (*http.Response, error) {
		for _, is := range dead {
			if is(r) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
		}
		return a.Do(r)
	})
	client, err := cosmos.Open(t.Context(), "https://g.example", cosmos.Key("a2V5"), o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Container(t.Context(), "db", "items")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Partitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// refuse gives the first n requests an answer.
func refuse(n, status int, header ...string) func(*http.Request, int) (*http.Response, error) {
	return func(_ *http.Request, i int) (*http.Response, error) {
		if i > n {
			return nil, nil
		}
		return say(status, `{"code":"Bad","message":"Message: {\"Errors\":[\"because\"]}\r\nActivityId: x"}`,
			header...), nil
	}
}

// fail gives the first n requests an error.
func fail(n int, err error) func(*http.Request, int) (*http.Response, error) {
	return func(_ *http.Request, i int) (*http.Response, error) {
		if i > n {
			return nil, nil
		}
		return nil, err
	}
}

// hang lets the first n requests have no answer.
func hang(n int) func(*http.Request, int) (*http.Response, error) {
	return func(r *http.Request, i int) (*http.Response, error) {
		if i > n {
			return nil, nil
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
}

const always = 1000

var (
	refusedDial = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	brokenPipe  = &net.OpError{Op: "write", Err: errors.New("broken pipe")}
	lostReply   = &net.OpError{Op: "read", Err: errors.New("connection reset")}
)

func read(ctx context.Context, c *cosmos.Container) error {
	_, err := c.Read(ctx, feed.FullRange(), feed.At(`"5"`), feed.ReadOptions{})
	return err
}

func write(ctx context.Context, c *cosmos.Container) error {
	_, err := c.Commit(ctx, feed.Key("k"), []feed.Write{{Body: []byte(`{"id":"a","pk":"k"}`)}})
	return err
}

// TestWhenARequestIsSentAgain is the table of retry.go: where the requests of one read
// and of one write go, what becomes of them, and how long it may take.
func TestWhenARequestIsSentAgain(t *testing.T) {
	unknown := errors.New("no sentinel")
	for _, c := range []struct {
		name        string
		trouble     func(*http.Request, int) (*http.Response, error)
		read, write string // the hosts asked, in order
		fails       error  // of the write, and of the read if it gives up as well
		readFails   bool
		most        time.Duration
	}{
		{"nothing", refuse(0, 0), "w", "n", nil, false, 0},
		{"400", refuse(always, 400), "w", "n", feed.ErrBadRequest, true, 0},
		{"401", refuse(always, 401), "w", "n", feed.ErrForbidden, true, 0},
		{"403", refuse(always, 403, "x-ms-substatus", "5302"), "w", "n", feed.ErrForbidden, true, 0},
		{"404", refuse(always, 404), "w", "n", feed.ErrNotFound, true, 0},
		{"405", refuse(always, 405), "w", "n", feed.ErrBadRequest, true, 0},
		{"409", refuse(always, 409), "w", "n", feed.ErrConflict, true, 0},
		{"412", refuse(always, 412), "w", "n", feed.ErrPrecondition, true, 0},
		{"413", refuse(always, 413), "w", "n", feed.ErrBadRequest, true, 0},
		{"container made anew", refuse(always, 400, "x-ms-substatus", "1024"), "w", "n", cosmos.ErrMadeAnew, true, 0},
		{
			"429 for a moment, twice", refuse(2, 429, "x-ms-retry-after-ms", "700"), "w w w", "n n n", nil, false,
			1500 * time.Millisecond,
		},
		{"429 for long", refuse(always, 429, "x-ms-retry-after-ms", "5000"), "w", "n", feed.ErrThrottled, true, 0},
		{
			"429 for ever", refuse(always, 429, "x-ms-retry-after-ms", "10"), "w w w w w", "n n n n n",
			feed.ErrThrottled,
			true, time.Second,
		},
		{"449 twice", refuse(2, 449), "w w w", "n n n", nil, false, 200 * time.Millisecond},
		{"449 for ever", refuse(always, 449), "w w w w w", "n n n n n", unknown, true, time.Second},
		{"write region moved", refuse(1, 403, "x-ms-substatus", "3"), "w w", "n n", nil, false, 50 * time.Millisecond},
		{
			"write region gone for ever", refuse(always, 403, "x-ms-substatus", "1008"), "w w w w w", "n n n n n",
			unknown,
			true, time.Second,
		},
		{"replica behind", refuse(1, 404, "x-ms-substatus", "1002"), "w n", "n n", nil, false, 50 * time.Millisecond},
		{
			"replica behind for ever", refuse(always, 404, "x-ms-substatus", "1002"), "w n w n w", "n n n n n", unknown,
			true, time.Second,
		},
		{"500", refuse(1, 500), "w n", "n", unknown, false, 50 * time.Millisecond},
		{"502", refuse(1, 502), "w n", "n", unknown, false, 50 * time.Millisecond},
		{"503", refuse(1, 503), "w n", "n", unknown, false, 50 * time.Millisecond},
		{"504", refuse(1, 504), "w n", "n", unknown, false, 50 * time.Millisecond},
		{"408", refuse(1, 408), "w n", "n", unknown, false, 50 * time.Millisecond},
		{"503 that asks for a minute", refuse(1, 503, "Retry-After", "60"), "w n", "n", unknown, false, time.Second},
		{"503 for ever", refuse(always, 503), "w n w n w", "n", unknown, true, time.Second},
		{"no connection", fail(1, refusedDial), "w n", "n n", nil, false, 50 * time.Millisecond},
		{"lost request", fail(1, brokenPipe), "w n", "n", unknown, false, 50 * time.Millisecond},
		{"lost reply", fail(1, lostReply), "w n", "n", lostReply, false, 50 * time.Millisecond},
		{"silence", hang(1), "w n", "n", unknown, false, 31 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &account{regions: twoRegions, trouble: c.trouble}
				items := a.open(t, cosmos.Options{PreferredRegions: []string{"westeurope"}})
				begun := time.Now()
				a.check(t, "read", read(t.Context(), items), c.read, when(c.readFails, c.fails), unknown)
				if took := time.Since(begun); took > c.most {
					t.Errorf("read took %v, want at most %v", took, c.most)
				}
				a.asked = nil
				begun = time.Now()
				a.check(t, "write", write(t.Context(), items), c.write, c.fails, unknown)
				if took := time.Since(begun); took > c.most {
					t.Errorf("write took %v, want at most %v", took, c.most)
				}
			})
		})
	}
}

func when(fails bool, err error) error {
	if fails {
		return err
	}
	return nil
}

// sentinels are what the processor asks an error for.
var sentinels = []error{
	feed.ErrConflict, feed.ErrNotFound, feed.ErrForbidden, feed.ErrGone,
	feed.ErrTooOld, feed.ErrThrottled, feed.ErrBadRequest,
}

func (a *account) check(t *testing.T, what string, err error, hosts string, want, unknown error) {
	t.Helper()
	if got := strings.Join(a.asked, " "); got != hosts {
		t.Errorf("%s asked %q, want %q", what, got, hosts)
	}
	if want == unknown && err != nil {
		for _, s := range sentinels {
			if errors.Is(err, s) {
				t.Errorf("%s: %v, want an error that is not %q", what, err, s)
			}
		}
		return
	}
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestAThrottledErrorTellsThePause(t *testing.T) {
	const ms, s = "x-ms-retry-after-ms", "Retry-After"
	for _, c := range []struct {
		header, value string
		want          time.Duration
	}{
		{ms, "5000.5", 5000500 * time.Microsecond},
		{s, "7", 7 * time.Second},
		{s, "86400", time.Minute},
		{s, "9223372036854775807", time.Minute},
		{ms, "1e300", time.Minute},
		{ms, "Inf", time.Minute},
	} {
		a := &account{trouble: refuse(always, 429, c.header, c.value)}
		err := read(t.Context(), a.open(t, cosmos.Options{}))
		if throttled, ok := errors.AsType[*feed.ThrottledError](err); !ok || throttled.After != c.want {
			t.Errorf("%s: %s: %v, want a pause of %v", c.header, c.value, err, c.want)
		}
	}
}

func TestAnErrorTellsWhatTheServiceSaid(t *testing.T) {
	a := &account{trouble: refuse(always, 403, "x-ms-substatus", "5302", "x-ms-activity-id", "a-1")}
	err := read(t.Context(), a.open(t, cosmos.Options{}))
	const want = `read feed of "items": GET /dbs/db/colls/items/docs: 403/5302 Bad: because; ` +
		`it needs the action Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/readChangeFeed (activity a-1)`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if e, ok := errors.AsType[*cosmos.Error](err); !ok || e.Status != 403 || e.SubStatus != 5302 ||
		e.ActivityID != "a-1" {
		t.Errorf("%+v", e)
	}
}

// TestAnErrorTellsWhatToDo has refusals whose reason the status alone does not tell.
func TestAnErrorTellsWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		date := func(off time.Duration) string { return time.Now().Add(off).UTC().Format(http.TimeFormat) }
		const forbidden = `read feed of "items": GET /dbs/db/colls/items/docs: 403 Bad: because`
		for _, c := range []struct {
			name    string
			trouble func(*http.Request, int) (*http.Response, error)
			want    string
		}{
			{"a firewall", refuse(always, 403, "Date", date(10*time.Minute)), forbidden},
			{
				"a clock that is behind", refuse(always, 403, "Date", date(20*time.Minute)),
				forbidden +
					"; the service's clock is 20m0s ahead of this machine's: want at most 14m0s either way, set " +
					"the clock",
			},
			{
				"a clock that is ahead", refuse(always, 403, "Date", date(-time.Hour)),
				forbidden +
					"; the service's clock is -1h0m0s ahead of this machine's: want at most 14m0s either way, set " +
					"the clock",
			},
			{
				"a container made anew", refuse(always, 404, "x-ms-substatus", "1024"),
				`read feed of "items": GET /dbs/db/colls/items/docs: 404/1024 Bad: because; it was deleted and made anew since it was opened: start again, and decide where from`,
			},
			{"a proxy", func(*http.Request, int) (*http.Response, error) {
				return say(502, "<html>\r\n<h1>502 Bad Gateway</h1>\r\n</html>"), nil
			}, `read feed of "items": GET /dbs/db/colls/items/docs: 502: <html> <h1>502 Bad Gateway</h1> </html>`},
			{
				"silence", hang(always),
				`read feed of "items": GET /dbs/db/colls/items/docs: no answer from g.example within 15s`,
			},
		} {
			if err := read(t.Context(), (&account{trouble: c.trouble}).open(t, cosmos.Options{})); err == nil ||
				err.Error() != c.want {
				t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
			}
		}
	})
}

// Whoever reads the message must not get the payload that was signed, nor half a character.
func TestAMessageIsCutWhereItEnds(t *testing.T) {
	for message, want := range map[string]string{
		"The MAC is wrong. Server used the following payload to sign: 'get docs'": "The MAC is wrong.",
		"x" + strings.Repeat("é", 400):                                            "x" + strings.Repeat("é", 149) + "…",
	} {
		a := &account{trouble: func(*http.Request, int) (*http.Response, error) {
			return say(401, `{"code":"Unauthorized","message":"`+message+`"}`), nil
		}}
		e, ok := errors.AsType[*cosmos.Error](read(t.Context(), a.open(t, cosmos.Options{})))
		if !ok || e.Message != want {
			t.Errorf("%+v, want the message %s", e, want)
		}
	}
}

func TestARequestEndsWithTheCauseOfItsContext(t *testing.T) {
	for name, trouble := range map[string]func(*http.Request, int) (*http.Response, error){
		"in a request": hang(always), "in a pause": refuse(always, 429, "x-ms-retry-after-ms", "900"),
	} {
		synctest.Test(t, func(t *testing.T) {
			items := (&account{trouble: trouble}).open(t, cosmos.Options{})
			enough := errors.New("enough")
			ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, enough)
			defer cancel()
			begun := time.Now()
			if err := read(ctx, items); !errors.Is(err, enough) || time.Since(begun) != 100*time.Millisecond {
				t.Errorf("%s: %v after %v, want the cause after 100ms", name, err, time.Since(begun))
			}
		})
	}
}

// TestWhereRequestsGo has the hosts of a read, a write and a request about leases.
func TestWhereRequestsGo(t *testing.T) {
	for _, c := range []struct {
		name, regions string
		preferred     []string
		want          string
	}{
		{"an account without regions stays at the endpoint", noRegions, []string{"North"}, "g g g"},
		{
			"one region stays at the endpoint",
			`"writableLocations":[{"name":"North","databaseAccountEndpoint":"https://n.example/"}]`, nil, "g g g",
		},
		{"without preference the write region", twoRegions, nil, "n n n"},
		{"without preference the write region, in whatever order regions are listed", westFirst, nil, "n n n"},
		{"an unknown preference", twoRegions, []string{"Mars"}, "n n n"},
		{"reads go to the preferred region", twoRegions, []string{"West Europe"}, "w n n"},
		{"in several write regions writes too, but not leases", multiWrites, []string{"West Europe"}, "w w n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &account{regions: c.regions, trouble: refuse(0, 0)}
			o := cosmos.Options{PreferredRegions: c.preferred}
			items := a.open(t, o)
			if err := errors.Join(read(t.Context(), items), write(t.Context(), items)); err != nil {
				t.Fatal(err)
			}
			leases := a.leases(t, items, c.preferred...)
			if err := leases.Delete(t.Context(), feed.Record{
				Kind: feed.KindLease, Token: "0", ID: "a%b",
				ETag: `"e"`,
			}); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(a.asked, " "); got != c.want {
				t.Errorf("asked %q, want %q", got, c.want)
			}
			multi := a.log[len(a.log)-1].Header.Get("x-ms-cosmos-allow-tentative-writes")
			if (multi == "true") != (c.regions == multiWrites) {
				t.Errorf("x-ms-cosmos-allow-tentative-writes is %q", multi)
			}
		})
	}
}

// leases is a lease store in a container whose partition key path the account plays as
// well as /pk.
func (a *account) leases(t *testing.T, items *cosmos.Container, preferred ...string) *cosmos.Leases {
	t.Helper()
	client, err := cosmos.Open(t.Context(), "https://g.example", cosmos.Key("a2V5"),
		cosmos.Options{Transport: byID{a}, PreferredRegions: preferred})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Container(t.Context(), "db", "leases")
	if err != nil {
		t.Fatal(err)
	}
	trouble, asked := a.trouble, len(a.asked)
	a.trouble = func(*http.Request, int) (*http.Response, error) { return say(200, `{"Documents":[]}`), nil }
	s, err := cosmos.OpenLeases(t.Context(), c, "unit", items, cosmos.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.trouble, a.asked = trouble, a.asked[:asked]
	return s
}

// byID makes an account's containers have the partition key /id.
type byID struct{ *account }

func (a byID) Do(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/colls/leases") {
		return say(200,
			`{"_rid":"AAAAAAAAAAA=","defaultTtl":-1,"partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}`), nil
	}
	return a.account.Do(r)
}

// TestALeaseIsNotReadFromHalfAnAnswer has answers to writes of leases without the ETag,
// which is at the end of a document.
func TestALeaseIsNotReadFromHalfAnAnswer(t *testing.T) {
	a := &account{trouble: func(*http.Request, int) (*http.Response, error) {
		return say(201, `{"id":"a","Owner":"b"`), nil
	}}
	leases := a.leases(t, a.open(t, cosmos.Options{}))
	got, err := leases.Create(t.Context(), feed.Record{Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange()})
	if err == nil || got.Owner != "" || !strings.Contains(err.Error(), "the answer is no document") {
		t.Errorf("%+v, %v: want an error", got, err)
	}
}

// A listing that was cut off must not look like one of fewer leases: they would be made anew.
func TestHalfAListingIsNone(t *testing.T) {
	a := &account{}
	leases := a.leases(t, a.open(t, cosmos.Options{}))
	a.trouble = func(*http.Request, int) (*http.Response, error) { return say(200, `{"_rid":"r","Documents":[`), nil }
	if got, _, err := leases.List(t.Context()); err == nil {
		t.Errorf("%+v: want an error", got)
	}
}

func TestAPauseThatIsAskedForIsMade(t *testing.T) {
	for _, c := range []struct {
		status int
		asked  string // in milliseconds
		least  time.Duration
	}{{429, "900", 900 * time.Millisecond}, {429, "", time.Second}, {449, "900", 900 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			a := &account{trouble: refuse(1, c.status, "x-ms-retry-after-ms", c.asked)}
			items := a.open(t, cosmos.Options{})
			begun := time.Now()
			if err := read(t.Context(), items); err != nil || time.Since(begun) < c.least {
				t.Errorf("%d, %s ms: %v after %v, want none after %v", c.status, c.asked, err, time.Since(begun),
					c.least)
			}
		})
	}
}

// Clients that failed together do not come back together.
func TestPausesDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := (&account{trouble: refuse(20, 503)}).open(t, cosmos.Options{})
		begun, took := time.Now(), sync.Map{}
		var reading sync.WaitGroup
		for range 20 {
			reading.Go(func() {
				if err := read(t.Context(), items); err != nil {
					t.Error(err)
				}
				took.Store(time.Since(begun), true)
			})
		}
		reading.Wait()
		n := 0
		took.Range(func(any, any) bool { n++; return true })
		if n < 2 {
			t.Error("20 requests are repeated at the same moment")
		}
	})
}

// By one id the service's support finds all that was tried.
func TestAllAttemptsOfARequestHaveOneActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{trouble: refuse(2, 503)}
		if err := errors.Join(read(t.Context(), a.open(t, cosmos.Options{}))); err != nil {
			t.Fatal(err)
		}
		ids := map[string]int{}
		for _, r := range a.log {
			ids[r.Header.Get("x-ms-activity-id")]++
		}
		if last := a.log[len(a.log)-1].Header.Get("x-ms-activity-id"); ids[last] != 3 || len(ids) != len(a.log)-2 {
			t.Errorf("%d requests have the activities %v, want one for the three of the read", len(a.log), ids)
		}
	})
}

// An endpoint with a path leads through a proxy.
func TestAnEndpointMayHaveAPath(t *testing.T) {
	a := &account{trouble: refuse(0, 0)}
	client, err := cosmos.Open(t.Context(), " https://g.example:/to/azure/ ", cosmos.Key("a2V5"),
		cosmos.Options{Transport: a})
	if err != nil || client.Endpoint() != "https://g.example/to/azure" {
		t.Fatalf("%v, want the endpoint without its ends", err)
	}
	items, err := client.Container(t.Context(), "db", "items")
	if err != nil {
		t.Fatal(err)
	}
	if err := read(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	if got := a.log[0].URL.Path; got != "/to/azure/" {
		t.Errorf("the account was asked for at %s", got)
	}
	if got := a.log[len(a.log)-1].URL.Path; got != "/to/azure/dbs/db/colls/items/docs" {
		t.Errorf("the feed was asked for at %s", got)
	}
}

// closing notes that an answer was closed.
type closing struct {
	io.Reader
	closed *bool
}

func (c closing) Close() error { *c.closed = true; return nil }

// blank is white space without end.
type blank struct{}

func (blank) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// An answer that does not end fills no memory, and its beginning is no answer; a connection goes back when its answer
// is read.
func TestAnswersAreReadToTheirEndAndClosed(t *testing.T) {
	for rest, want := range map[io.Reader]bool{strings.NewReader(""): true, blank{}: false} {
		closed := false
		a := &account{trouble: func(*http.Request, int) (*http.Response, error) {
			resp := say(200, "")
			resp.Body = closing{io.MultiReader(strings.NewReader(`[{"statusCode":201}]`), rest), &closed}
			return resp, nil
		}}
		if err := write(t.Context(), a.open(t, cosmos.Options{})); (err == nil) != want || !closed {
			t.Errorf("write: %v, closed %t", err, closed)
		}
	}
}

// A list of partitions that takes long holds nobody who gives up.
func TestWhoGivesUpWaitsForNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := false
		items := (&account{}).open(t, cosmos.Options{}, func(r *http.Request) bool {
			return dead && strings.HasSuffix(r.URL.Path, "/pkranges")
		})
		dead = true
		var first sync.WaitGroup
		first.Go(func() {
			if parts, err := items.Partitions(t.Context()); err == nil {
				t.Errorf("%v from nobody", parts)
			}
		})
		time.Sleep(time.Millisecond)
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer cancel()
		if parts, err := items.Partitions(ctx); !errors.Is(err, enough) {
			t.Errorf("%v, %v, want the cause of the context's end", parts, err)
		}
		first.Wait()
	})
}

func TestWhatOpenRefuses(t *testing.T) {
	good := cosmos.Key("a2V5")
	for _, c := range []struct {
		endpoint   string
		credential cosmos.Credential
		o          cosmos.Options
		want       string
	}{
		{"", good, cosmos.Options{}, "endpoint"},
		{"contoso.documents.azure.com", good, cosmos.Options{}, "endpoint"},
		{"ftp://contoso", good, cosmos.Options{}, "endpoint"},
		{"https://g.example?api=2", good, cosmos.Options{}, "endpoint"},
		{"https://me:word@g.example", good, cosmos.Options{}, "endpoint"},
		{"https://g.example", cosmos.Key("?"), cosmos.Options{}, "account key"},
		{"https://g.example", cosmos.Credential{}, cosmos.Options{}, "account key"},
		{"https://g.example", good, cosmos.Options{RequestTimeout: time.Millisecond}, "request timeout is 1ms"},
		{"https://g.example", good, cosmos.Options{RequestTimeout: -1}, "request timeout is -1ns"},
		{"https://g.example", good, cosmos.Options{RequestTimeout: time.Hour}, "request timeout is 1h"},
		{"https://g.example", good, cosmos.Options{UserAgent: "a\nb"}, "user agent"},
	} {
		_, err := cosmos.Open(t.Context(), c.endpoint, c.credential, c.o)
		if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("Open(%q, %+v): %v, want a bad request about %s", c.endpoint, c.o, err, c.want)
		}
	}
	for _, connection := range []string{"", "AccountEndpoint=https://g.example/", "AccountKey=secret==;"} {
		_, err := cosmos.OpenString(t.Context(), connection, cosmos.Options{})
		if !errors.Is(err, feed.ErrBadRequest) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("OpenString(%q): %v", connection, err)
		}
	}
	a := &account{}
	client, err := cosmos.OpenString(t.Context(), " AccountEndpoint=https://g.example:443/;AccountKey=a2V5eQ==; ",
		cosmos.Options{Transport: a})
	if err != nil || client.Endpoint() != "https://g.example:443" {
		t.Errorf("OpenString: %v", err)
	}
}
