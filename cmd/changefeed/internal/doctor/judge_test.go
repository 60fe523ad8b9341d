package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// noon is when the tests take place.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// want compares a finding with a verdict, a part of its text, and a part of its advice, which only ok has not.
func (f Finding) want(t *testing.T, v Verdict, found, next string) {
	t.Helper()
	if f.Verdict != v || !strings.Contains(f.Found, found) || !strings.Contains(f.Next, next) ||
		(f.Next == "") != (v == OK) {
		t.Errorf("got %s, want %s with %q, and %q as what to do", f.Line(), v, found, next)
	}
	if !f.Known && (f.Verdict == OK || !strings.Contains(f.Found, "not known")) {
		t.Errorf("%s: what is not known looks as if it were", f.Line())
	}
}

// glance is an answer to a request that was sent at noon and took some time, from a server whose clock is ahead.
func glance(took, ahead time.Duration) place.Glance {
	return place.Glance{
		Status: 200, Sent: noon, Received: noon.Add(took),
		Date: noon.Add(took/2 + ahead).Truncate(time.Second),
	}
}

func TestAClockIsJudgedByTheDatesOfAnswers(t *testing.T) {
	undated := place.Glance{Status: 200, Sent: noon, Received: noon.Add(time.Millisecond)}
	jumped := glance(time.Millisecond, time.Hour)
	for _, tt := range []struct {
		name string
		all  []place.Glance
		want Verdict
		text string
	}{
		{"equal", []place.Glance{glance(time.Millisecond, 0)}, OK, "agrees"},
		{"a second is lost by rounding", []place.Glance{glance(time.Millisecond, 999*time.Millisecond)}, OK, "agrees"},
		{"at the limit", []place.Glance{glance(0, 2*time.Second)}, OK, "agrees"},
		{"behind", []place.Glance{glance(time.Millisecond, 3*time.Second)}, Warn, "clock is 3s behind the server's"},
		{"ahead", []place.Glance{glance(time.Millisecond, -4*time.Second)}, Warn, "clock is 3s ahead of the server's"},
		{"at the second limit", []place.Glance{glance(0, 30*time.Second)}, Warn, "30s behind"},
		{"far behind", []place.Glance{glance(time.Millisecond, 32*time.Second)}, Fail, "32s behind"},
		{"20 minutes ahead", []place.Glance{glance(0, -20*time.Minute)}, Fail, "ahead of the server's"},
		{"a slow answer proves nothing", []place.Glance{glance(time.Minute, 20*time.Second)}, OK, "agrees"},
		{
			"a quick answer among slow ones",
			[]place.Glance{glance(time.Minute, 5*time.Second), glance(time.Millisecond, 5*time.Second)},
			Warn, "5s behind",
		},
		{"no date", []place.Glance{undated}, Warn, "not known"},
		{"one date", []place.Glance{undated, glance(time.Millisecond, 5*time.Second)}, Warn, "5s behind"},
		{"a clock was set", []place.Glance{glance(time.Millisecond, 0), jumped}, Warn, "not known"},
	} {
		t.Run(tt.name, func(t *testing.T) { judgeClock(tt.all).want(t, tt.want, tt.text, "") })
	}
	judgeClock([]place.Glance{glance(0, time.Hour)}).want(t, Fail, "1h", "15 minutes")
}

func TestACertificateIsJudgedByItsTimeAndTrust(t *testing.T) {
	seal := func(from, until time.Duration, distrust error) place.Seal {
		c := &x509.Certificate{NotBefore: noon.Add(from), NotAfter: noon.Add(until)}
		issuer := &x509.Certificate{NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(24 * 999 * time.Hour)}
		return place.Seal{Chain: []*x509.Certificate{c, issuer}, Distrust: distrust, Encrypted: true}
	}
	const day = 24 * time.Hour
	early := seal(-day, 90*day, nil)
	early.Chain[1].NotAfter = noon.Add(5 * day)
	unknown := x509.UnknownAuthorityError{}
	for _, tt := range []struct {
		name       string
		seal       place.Seal
		want       Verdict
		text, next string
	}{
		{"fresh", seal(-day, 30*day, nil), OK, "valid until 2026-06-03", ""},
		{"soon", seal(-day, 30*day-time.Second, nil), Warn, "expires in 29 days, on 2026-06-03", "renew"},
		{"today", seal(-day, time.Hour, nil), Warn, "expires in 0 days", "renew"},
		{"expired", seal(-2*day, 0, nil), Fail, "expired on 2026-05-04", "renew"},
		{"expired and unknown", seal(-2*day, -day, unknown), Fail, "expired on 2026-05-03", "renew"},
		{"not yet", seal(time.Hour, day, nil), Fail, "valid only from 2026-05-04T13:00:00Z on", "clock"},
		{"unknown", seal(-day, 90*day, unknown), Fail, "unknown authority", "--ca"},
		{"an issuer expires first", early, Warn, "expires in 5 days", "renew"},
		{"no encryption", place.Seal{}, Fail, "no https", "http://"},
	} {
		t.Run(tt.name, func(t *testing.T) { judgeCertificate(tt.seal, noon).want(t, tt.want, tt.text, tt.next) })
	}
}

func TestEncryptionIsNeededBetweenMachines(t *testing.T) {
	for endpoint, want := range map[string]Verdict{
		"https://contoso.documents.azure.com": OK, "http://127.0.0.1:8081": OK, "http://localhost": OK,
		"http://[::1]:80":      OK,
		"http://10.0.0.7:8081": Warn, "http://contoso.example": Warn, "http://127.0.0.1.example": Warn,
	} {
		if got := judgeEncryption(place.Origin{Endpoint: endpoint}); got.Verdict != want {
			t.Errorf("%s: got %s, want %s", endpoint, got.Line(), want)
		}
	}
}

func TestTheStatusOfAnAnswerSaysWhatIsWrong(t *testing.T) {
	answer := func(status int, said string, ahead time.Duration) []place.Glance {
		g := glance(time.Millisecond, ahead)
		g.Status, g.Said = status, said
		return []place.Glance{g}
	}
	origin := place.Origin{Key: "key from $COSMOS_KEY"}
	for _, tt := range []struct {
		all        []place.Glance
		want       Verdict
		text, next string
	}{
		{answer(200, "", 0), OK, "accepts the key", ""},
		{answer(200, "", time.Hour), OK, "accepts the key", ""},
		{answer(401, "wrong key", 0), Fail, "401: wrong key (key from $COSMOS_KEY)", "--account-key"},
		{answer(401, "too old", -time.Hour), Fail, "401: too old", "clock"},
		{answer(403, "too old", time.Hour), Fail, "403: too old", "clock"},
		{answer(403, "blocked", 0), Fail, "403: blocked", "firewall"},
		{answer(400, "Client sent an HTTP request to an HTTPS server.", 0), Fail, "speaks https", "https://"},
		{answer(404, "no", 0), Fail, "not that of an account", "address of an account"},
		{answer(302, "login", 0), Fail, "not that of an account", "address of an account"},
		{answer(503, "disk full", 0), Fail, "the server fails: 503: disk full", "log"},
	} {
		judgeRead(tt.all, origin).want(t, tt.want, tt.text, tt.next)
	}
}

func TestTheLatencyIsTheMedianWithoutTheConnection(t *testing.T) {
	took := func(ms ...int) (all []place.Glance) {
		for _, n := range ms {
			all = append(all, glance(time.Duration(n)*time.Millisecond, 0))
		}
		return all
	}
	judgeLatency(took(9000, 3, 900, 5)).want(t, OK, "5ms, the median of 3 requests", "")
	judgeLatency(took(1, 500, 500, 500)).want(t, OK, "500ms", "")
	judgeLatency(took(1, 501, 700, 3)).want(t, Warn, "501ms", "near the account")
	judgeLatency(took(1)).want(t, Warn, "not known", "again")
	judgeLatency(nil).want(t, Warn, "not known", "again")
}

func TestTheRightToWriteIsSaid(t *testing.T) {
	judgeWrite(place.Granted, "shop/leases", nil).want(t, OK, "may write to shop/leases", "")
	judgeWrite(place.Denied, "shop/leases", nil).want(t, Warn, "may only read shop/leases", "read-write key")
	f := judgeWrite(place.Unknown, "shop/leases", context.DeadlineExceeded)
	if f.want(t, Warn, "not known: there was no answer in time", "--timeout"); f.Known {
		t.Error("an unknown right is known")
	}
}

func TestADiskIsJudgedByWhatIsFree(t *testing.T) {
	const gb = 1_000_000_000
	judgeDisk(10*gb, 100*gb).want(t, OK, "10.0 GB free of 100.0 GB", "")
	judgeDisk(10*gb-1, 100*gb).want(t, Warn, "free of 100.0 GB", "free some space")
	judgeDisk(20*gb, 1000*gb).want(t, OK, "20.0 GB free", "")
	judgeDisk(20*gb-1, 1000*gb).want(t, Warn, "free of", "free some space")
	judgeDisk(gb/10, gb/5).want(t, OK, "100.0 MB free", "")
	judgeDisk(gb/10-1, gb/5).want(t, Fail, "free of", "free some space")
}

func TestAStoreThatDoesNotOpenIsExplained(t *testing.T) {
	judgeOpening(nil).want(t, OK, "opens", "")
	judgeOpening(fmt.Errorf("open: %w", docstore.ErrInUse)).want(t, Warn, "another process", "changefeed serve")
	judgeOpening(fmt.Errorf("open: %w: block 3", docstore.ErrCorrupt)).want(t, Fail, "block 3", "backup")
	judgeOpening(fmt.Errorf("open: %w", docstore.ErrNotStore)).want(t, Fail, "not a store", "directory of a store")
	judgeOpening(errors.New("read: strange")).want(t, Fail, "strange", "again")
}

func TestIntegrityIsSaidOnlyWhereItCanBeChecked(t *testing.T) {
	one := func(v []docstore.Violation, err error) Finding {
		t.Helper()
		all := judgeIntegrity(v, err, 7)
		if len(all) != 1 {
			t.Fatalf("%d findings, want 1", len(all))
		}
		return all[0]
	}
	one(nil, nil).want(t, OK, "7 documents, no violation", "")
	one(make([]docstore.Violation, 2), nil).want(t, Fail, "2 violations", "copy")
	one(make([]docstore.Violation, 2), errors.New("interrupted")).want(t, Fail, "2 violations", "copy")
	one(nil, feed.ErrForbidden).want(t, Warn, "not known", "read-write key")
	one(nil, context.DeadlineExceeded).want(t, Warn, "not known", "--timeout")
	for _, none := range []error{feed.ErrNotFound, feed.ErrBadRequest} {
		if got := judgeIntegrity(nil, none, 7); got != nil {
			t.Errorf("an account has the finding %s", got[0].Line())
		}
	}
}

func TestMissingContainersAreExplained(t *testing.T) {
	none := fmt.Errorf("ADDRESS is x: %w: want one of shop/orders", place.ErrNoContainer)
	judgeMissing(place.Address{Database: "shop", Container: "leases"}, none).want(t, Fail, "no such container",
		"positions of its units are lost")
	judgeMissing(place.Address{Database: "shop", Container: "leases"}, none).want(t, Fail, "no such container",
		"want one of shop/orders")
	judgeMissing(place.Address{}, fmt.Errorf("list: %w", feed.ErrForbidden)).want(t, Warn, "not known", "read metadata")
	judgeMissing(place.Address{}, fmt.Errorf("x: %w: want one of a", place.ErrNoDatabase)).want(t, Fail,
		"no such database", "want one of a")
}

func TestThroughputThatNobodyTellsIsNotZero(t *testing.T) {
	four := 400
	with, without := items.Container{Name: "a/b", Throughput: &four}, items.Container{Name: "a/c"}
	judgeThroughput([]items.Container{with}).want(t, OK, "a/b 400 RU/s", "")
	judgeThroughput([]items.Container{without}).want(t, Warn, "not known", "offers")
	f := judgeThroughput([]items.Container{with, without})
	if f.want(t, Warn, "a/b 400 RU/s; not known: a/c", "offers"); f.Known {
		t.Error("a throughput that is not known is known")
	}
}

func TestManyContainersAreNotAllNamed(t *testing.T) {
	var all []items.Container
	for i := range 7 {
		all = append(all, items.Container{Name: fmt.Sprintf("d%d/c%d", i%2, i)})
	}
	judgeContainers(all).want(t, OK, "7 containers in 2 databases: d0/c0, d1/c1, d0/c2, d1/c3, d0/c4 and 2 more", "")
	judgeContainers(nil).want(t, OK, "none", "")
}

// TestALineIsOneLine: names come from stores, and errors from servers.
func TestALineIsOneLine(t *testing.T) {
	f := bad("leases", "a\nb", Fail, "do\x1b[31m this", "line\r\nbreak")
	if got, want := f.Line(), "FAIL  leases       a b: line break; do [31m this"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	full := judgeLetters("u", "box", unitOf().Commands, map[feed.Disposition]int{feed.DispositionHeld: 1}, true)
	full.want(t, Warn, "at least 1 dead letter in box: 1 held", "changefeed dlq list")
}
