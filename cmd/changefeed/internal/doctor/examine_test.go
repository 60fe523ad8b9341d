package doctor

import (
	"context"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// examine examines an address, and returns the findings by their checks, and the summary.
func examine(t *testing.T, s place.Settings, address string, edit func(*Examination)) (map[string]Finding, Summary) {
	t.Helper()
	at, err := s.ParseWhole("ADDRESS", address)
	if err != nil {
		t.Fatal(err)
	}
	o := place.NewOpener(s)
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	found := map[string]Finding{}
	e := Examination{Opener: o, At: at, Each: time.Minute, Whole: time.Minute, Tell: func(f Finding) error {
		if old, ok := found[f.Check]; !ok || old.Verdict == OK {
			found[f.Check] = f
		}
		return nil
	}}
	if edit != nil {
		edit(&e)
	}
	sum, err := e.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found, sum
}

// verdicts compares the verdicts of some checks.
func verdicts(t *testing.T, found map[string]Finding, want map[string]Verdict) {
	t.Helper()
	for check, v := range want {
		if got := found[check]; got.Verdict != v {
			t.Errorf("check %s: got %q, want the verdict %q", check, got.Line(), v)
		}
	}
}

// TestAServerIsAskedAndNotChanged: the question whether the key may write must leave nothing.
func TestAServerIsAskedAndNotChanged(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	c, err := server.DB.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	before := c.Count()
	found, sum := examine(t, place.Settings{Key: server.Key}, server.URL, nil)
	verdicts(t, found, map[string]Verdict{
		"account": OK, "key": OK, "encryption": OK, "name": OK, "connection": OK, "read": OK, "clock": OK,
		"latency": OK, "containers": OK, "write": OK, "throughput": Warn, "integrity": OK, "units": OK,
	})
	if !sum.OK || sum.Checks != 13 || sum.Warnings != 1 {
		t.Errorf("got %+v, want 13 checks with one warning", sum)
	}
	if after := c.Count(); after != before {
		t.Errorf("there were %d documents, and now there are %d", before, after)
	}
}

func TestACertificateIsReadAlsoIfNobodyTrustsIt(t *testing.T) {
	server := cosmostest.StartTestServer(t, cosmostest.Options{TLS: true})
	found, _ := examine(t, place.Settings{Key: server.Key}, server.URL, nil)
	verdicts(t, found, map[string]Verdict{
		"encryption": OK, "connection": OK, "certificate": Fail, "read": Fail, "clock": OK, "latency": Warn,
		"units": Warn,
	})
	found["certificate"].want(t, Fail, "unknown authority", "--ca")

	own := httptest.NewUnstartedServer(http.NotFoundHandler())
	own.StartTLS()
	defer own.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	found, _ = examine(t, place.Settings{Key: server.Key, CA: file}, own.URL, nil)
	verdicts(t, found, map[string]Verdict{"certificate": OK, "read": Fail, "clock": OK, "latency": OK})
	found["read"].want(t, Fail, "not that of an account", "address")
}

// TestAHangingServerTakesNoLongerThanIsAllowed: the server accepts connections, and never answers.
func TestAHangingServerTakesNoLongerThanIsAllowed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := "http://" + l.Addr().String()
	found, sum := examine(t, place.Settings{}, address, func(e *Examination) { e.Each = 50 * time.Millisecond })
	verdicts(t, found, map[string]Verdict{
		"connection": OK, "read": Fail, "clock": Warn, "containers": Warn, "units": Warn,
	})
	found["read"].want(t, Fail, "no answer in time", "--timeout")
	found["clock"].want(t, Warn, "not known", "read")
	if sum.OK || sum.Failed != 1 {
		t.Errorf("got %+v, want one failure", sum)
	}
	found, _ = examine(t, place.Settings{}, address, func(e *Examination) { e.Whole = 50 * time.Millisecond })
	found["units"].want(t, Warn, "not known: the time of --wait is over", "--wait")
}

func TestAnInterruptEndsTheExamination(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at, err := place.Settings{}.ParseWhole("ADDRESS", "http://"+l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o := place.NewOpener(place.Settings{})
	defer o.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	var last Finding
	_, err = (&Examination{Opener: o, At: at, Each: time.Hour, Whole: time.Hour, Tell: func(f Finding) error {
		if last = f; f.Check == "connection" { // the next check gets no answer
			interrupt()
		}
		return nil
	}}).Run(ctx)
	if err == nil || !strings.Contains(err.Error(), "interrupted after 5 checks") || last.Check != "connection" {
		t.Errorf("got %v after %s, want an interrupt after the connection", err, last.Line())
	}
}

func TestAnOutputWithoutAReaderEndsTheExamination(t *testing.T) {
	o, broken, told := place.NewOpener(place.Settings{}), errors.New("broken pipe"), 0
	_, err := (&Examination{
		Opener: o, At: place.Store(t.TempDir(), ""), Each: time.Minute, Whole: time.Minute,
		Tell: func(Finding) error { told++; return broken },
	}).Run(t.Context())
	if !errors.Is(err, broken) || told != 1 {
		t.Errorf("got %v after %d findings, want the error of the first", err, told)
	}
}

// office is a store with a unit: its lease store, the container of the leases, and the function that judges the unit as
// it is now.
func office(t *testing.T) (
	leases *docstore.Leases, in *docstore.Container, judge func(func(*unit.Unit) []Finding) []Finding,
) {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	make := func(spec docstore.ContainerSpec) *docstore.Container {
		c, err := db.CreateContainer(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	orders := make(docstore.ContainerSpec{ID: "orders", Paths: []string{"/id"}})
	in = make(docstore.LeaseSpec("leases"))
	if leases, err = docstore.NewLeases(t.Context(), in, "mailer", orders); err != nil {
		t.Fatal(err)
	}
	at := func(c *docstore.Container) *place.Container {
		return place.Stored(c, place.Address{Container: c.ID(), Database: c.Database()})
	}
	return leases, in, func(judge func(*unit.Unit) []Finding) []Finding {
		units, err := unit.List(t.Context(), at(in), []*place.Container{at(orders), at(in)})
		if err != nil || len(units) != 1 {
			t.Fatal(units, err)
		}
		return judge(&units[0])
	}
}

// TestAnInstanceIsJudgedByItsRecord: its presence by the clock of the store, and its clock by the difference of both.
func TestAnInstanceIsJudgedByItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases, _, judge := office(t)
		add := func(name string, ahead time.Duration) {
			r := feed.Record{
				Kind: feed.KindHost, Token: name, Owner: name, Version: 1, Expiration: 40 * time.Second,
				Timestamp: time.Now().Add(ahead),
			}
			if _, err := leases.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		add("early/B", 20*time.Minute)
		add("good/A", time.Second)
		all := judge(judgeInstances)
		if len(all) != 2 {
			t.Fatalf("%d findings, want 2: %v", len(all), all)
		}
		all[0].want(t, Fail, "the clock of early/B is 20m ahead of the server's", "set the clock")
		all[1].want(t, Warn, "2 of 2 are idle", "split")
		time.Sleep(41 * time.Second)
		all = judge(judgeInstances)
		if len(all) != 2 {
			t.Fatalf("%d findings, want 2: %v", len(all), all)
		}
		all[0].want(t, Warn, "gone without an end: early/B, good/A", "why")
		all[1].want(t, Warn, "no instance runs", "start an instance")
	})
}

// TestAPresenceThatCannotBeReadIsJudged: not only documents of an unknown kind can be damaged.
func TestAPresenceThatCannotBeReadIsJudged(t *testing.T) {
	leases, in, judge := office(t)
	var host feed.Record
	for _, r := range []feed.Record{
		{
			Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange(), Version: 1, Owner: "one", Epoch: "e1",
			Position: feed.At(`"1"`),
		},
		{Kind: feed.KindHost, Token: "one", Owner: "one", Epoch: "e1"},
	} {
		var err error
		if host, err = leases.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Upsert(t.Context(), []byte(`{"id":"`+host.ID+`","Owner":5,"timestamp":{}}`)); err != nil {
		t.Fatal(err)
	}
	all := judge(judgeLeases)
	if len(all) != 1 {
		t.Fatalf("%d findings, want 1: %v", len(all), all)
	}
	all[0].want(t, Warn, "a document of the unit that cannot be read", "a later version may have written it")
}

// TestAnOverlapIsJudgedAsItIsFound: both leases are named.
func TestAnOverlapIsJudgedAsItIsFound(t *testing.T) {
	leases, _, judge := office(t)
	for _, part := range []string{"-1F", "-FF"} {
		r, err := feed.ParseRange(part)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Token: part, Range: r, Version: 1, Owner: "one", Epoch: "A",
			Position: feed.Position{Start: feed.FromBeginning()},
		}); err != nil {
			t.Fatal(err)
		}
	}
	all := judge(judgeLeases)
	if len(all) != 1 {
		t.Fatalf("%d findings, want 1: %v", len(all), all)
	}
	all[0].want(t, Fail, "lease -1F of one, lease -FF of one: they cover the same keys", "delete")
}

func TestAReadOnlyKeyReadsAndDoesNotWrite(t *testing.T) {
	const reader = "cmVhZC1vbmx5LWtleS0wMTIzNDU2Nzg5"
	server := cosmostest.StartTestServer(t, cosmostest.Options{Options: cosmosrest.Options{
		Keys: cosmosrest.Keys{Primary: cosmosrest.EmulatorKey, PrimaryReadOnly: reader},
	}})
	if _, err := server.DB.CreateContainer(t.Context(),
		docstore.ContainerSpec{ID: "orders", Paths: []string{"/a", "/b"}}); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]map[string]Verdict{
		reader:                 {"read": OK, "write": Warn, "integrity": Warn, "containers": OK},
		server.Key:             {"read": OK, "write": OK, "integrity": OK, "containers": OK},
		"d3Jvbmctd3Jvbmctd3I=": {"read": Fail, "write": Warn, "clock": OK, "latency": OK, "containers": Warn},
		"no base64":            {"key": Fail, "connection": OK, "read": Warn, "clock": Warn},
	} {
		found, _ := examine(t, place.Settings{Key: key}, server.URL, nil)
		verdicts(t, found, want)
	}
}

// An examination in which no check could find anything out is not ok: a monitor must not call that good.
func TestAnExaminationThatFindsNothingOutIsNotOK(t *testing.T) {
	unknown, known := Finding{Verdict: Warn}, Finding{Verdict: Warn, Known: true}
	var s Summary
	if s.add(unknown); s.OK {
		t.Error("an unknown finding alone is ok")
	}
	if s.add(known); !s.OK {
		t.Error("a warning is not ok")
	}
	if s.add(Finding{Verdict: Fail, Known: true}); s.OK {
		t.Error("a failure is ok")
	}
}
