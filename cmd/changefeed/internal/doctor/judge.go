package doctor

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// The judgement of what was seen of a machine, a connection and an account. These functions ask nobody.

// The limits between the verdicts.
const (
	skewWarn = 2 * time.Second
	skewFail = 30 * time.Second

	expiryWarn = 30 * 24 * time.Hour

	latencyWarn = 500 * time.Millisecond

	freeWarn   = 10             // percent of the disk
	freeEnough = 20_000_000_000 // bytes of which nobody is warned, however large the disk is
	freeFail   = 100_000_000    // bytes
)

// judgeEncryption judges whether others can read what is sent.
func judgeEncryption(o place.Origin) Finding {
	const check = "encryption"
	switch {
	case strings.HasPrefix(o.Endpoint, "https:"):
		return good(check, "", "https")
	case place.IsLoopback(o.Endpoint):
		return good(check, "", "http, which does not leave this machine")
	}
	return bad(check, "", Warn, "use https: changefeed serve has it without --http",
		"http to another machine, so others can read the documents, and repeat requests that the key has signed")
}

// judgeCertificate judges the certificate of an https server.
func judgeCertificate(s place.Seal, now time.Time) Finding {
	const check = "certificate"
	const renew = "renew the certificate of the server"
	if !s.Encrypted {
		return bad(check, "", Fail, "want an address that begins with http://", "the server speaks no https")
	}
	until := earliest(s.Chain)
	day := until.UTC().Format(time.DateOnly)
	switch left := until.Sub(now); {
	case left <= 0:
		return bad(check, "", Fail, renew, "expired on %s", day)
	case s.Chain[0].NotBefore.After(now):
		return bad(check, "", Fail, "set the clock of this machine, or wait", "valid only from %s on",
			s.Chain[0].NotBefore.UTC().Format(time.RFC3339))
	case s.Distrust != nil:
		return failed(check, "", Fail, s.Distrust)
	case left < expiryWarn:
		return bad(check, "", Warn, renew, "trusted, and expires in %s, on %s",
			terminal.Count(int(left/(24*time.Hour)), "day"), day)
	}
	return good(check, "", "trusted, and valid until %s", day)
}

// earliest returns when the first certificate of a chain expires.
func earliest(chain []*x509.Certificate) time.Time {
	return slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

// judgeKey says which key is used.
func judgeKey(o place.Origin, err error) Finding {
	const check = "key"
	if err != nil {
		return failed(check, "", Fail, err)
	}
	return good(check, "", "%s", o.Key)
}

// judgeRead judges whether the account accepts the key.
func judgeRead(all []place.Glance, o place.Origin) Finding {
	const check = "read"
	last := all[len(all)-1]
	skew, known := skewOf(all)
	said := fmt.Sprintf("the server refuses to read: %d: %s (%s)", last.Status, last.Said, o.Key)
	switch refused := last.Status == http.StatusUnauthorized || last.Status == http.StatusForbidden; {
	case last.Status/100 == 2:
		return good(check, "", "the server accepts the key for reading")
	case refused && known && skew.Abs() > skewFail:
		return bad(check, "", Fail, "set the clock of this machine first, because a signature is valid for 15 minutes", "%s",
			said)
	case last.Status == http.StatusUnauthorized:
		return bad(check, "", Fail, "want the account's key in --account-key, $"+place.KeyVariable+
			", a connection string or a context, or the key of changefeed serve in $"+place.ServerKeyVariable, "%s", said)
	case refused:
		return bad(check, "", Fail, "allow this machine in the firewall of the account, or give its identity a role that "+
			"reads", "%s", said)
	case strings.Contains(last.Said, "HTTP request to an HTTPS server"):
		return bad(check, "", Fail, "want an address that begins with https://", "the server speaks https")
	case last.Status/100 == 3, last.Status/100 == 4:
		return bad(check, "", Fail, "want the address of an account of Azure Cosmos DB, or of changefeed serve",
			"the answer is not that of an account: %d: %s", last.Status, last.Said)
	}
	return bad(check, "", Fail, "look into the log of the server", "the server fails: %d: %s", last.Status, last.Said)
}

// judgeWrite judges whether the key may write.
func judgeWrite(right place.Right, container string, err error) Finding {
	const check = "write"
	switch right {
	case place.Granted:
		return good(check, "", "the key may write to %s", container)
	case place.Denied:
		return bad(check, "", Warn, "instances need a key that may write leases: want the read-write key where they run",
			"the key may only read %s", container)
	}
	return unclear(check, "", err)
}

// skewOf returns by how much the server's clock is ahead of this one, at least; known is false if no answer has a date,
// or if a clock was set meanwhile. The date of an answer is in whole seconds, and was written at some time between the
// request and the answer, so each answer gives bounds, and all answers give narrower ones.
func skewOf(all []place.Glance) (skew time.Duration, known bool) {
	var low, high time.Duration
	for _, g := range all {
		if g.Date.IsZero() {
			continue
		}
		from, to := g.Date.Sub(g.Received), g.Date.Add(time.Second).Sub(g.Sent)
		if !known {
			low, high, known = from, to, true
		}
		low, high = max(low, from), min(high, to)
	}
	switch {
	case low > high:
		return 0, false
	case low > 0:
		return low, known
	case high < 0:
		return high, known
	}
	return 0, known
}

// judgeClock judges the difference between the clocks of the server and of this machine.
func judgeClock(all []place.Glance) Finding {
	const check = "clock"
	skew, known := skewOf(all)
	if !known {
		return unknown(check, "", "the answers of the server have no date, or a clock was set meanwhile",
			"compare the clocks of both machines yourself")
	}
	return judgeSkew(check, "", "this clock", skew)
}

// judgeSkew judges a difference of clocks; skew is by how much the store's clock is ahead of another.
func judgeSkew(check, about, whose string, skew time.Duration) Finding {
	amount := skew.Abs().Round(time.Second)
	side := "behind"
	if skew < 0 {
		side = "ahead of"
	}
	text := fmt.Sprintf("%s is %s %s the server's", whose, terminal.Exact(amount), side)
	const next = "set the clock, as with NTP: leases expire by the clock of the store, and Azure refuses a request that was " +
		"signed 15 minutes ago or ahead"
	switch {
	case skew.Abs() > skewFail:
		return bad(check, about, Fail, next, "%s", text)
	case skew.Abs() > skewWarn:
		return bad(check, about, Warn, next, "%s", text)
	}
	return good(check, about, "%s agrees with the server's within %v", whose, skewWarn)
}

// judgeLatency judges the median of the answers. The first answer is left out, because it includes the connection.
func judgeLatency(all []place.Glance) Finding {
	const check = "latency"
	var took []time.Duration
	for _, g := range all[min(1, len(all)):] {
		took = append(took, g.Took())
	}
	if len(took) == 0 {
		return unknown(check, "", "there are too few answers", "run changefeed doctor again")
	}
	slices.Sort(took)
	median := took[len(took)/2]
	const least = time.Millisecond / 10 // 0s would look like a request that was not made
	text := fmt.Sprintf("%v, the median of %s", max(median.Round(least), least), terminal.Count(len(took), "request"))
	if median > latencyWarn {
		return bad(check, "", Warn, "run instances near the account, and see whether the server or the network is busy", "%s",
			text)
	}
	return good(check, "", "%s", text)
}

// judgeDisk judges the free space of a disk, in bytes.
func judgeDisk(free, size uint64) Finding {
	const check = "disk"
	text := fmt.Sprintf("%s free of %s", terminal.Size(int64(free)), terminal.Size(int64(size)))
	switch {
	case free < freeFail:
		return bad(check, "", Fail, "free some space: a store on a full disk fails until it is opened again", "%s", text)
	case free < freeEnough && free*100 < size*freeWarn:
		return bad(check, "", Warn, "free some space before the disk is full", "%s", text)
	}
	return good(check, "", "%s", text)
}

// most is how many names a finding has.
const most = 5

// some returns the first names of a list.
func some(names []string) string {
	text := strings.Join(names[:min(most, len(names))], ", ")
	if n := len(names) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// judgeContainers says which containers there are.
func judgeContainers(all []items.Container) Finding {
	var names []string
	databases := map[string]bool{}
	for _, c := range all {
		database, _, _ := strings.Cut(c.Name, "/")
		names, databases[database] = append(names, c.Name), true
	}
	if len(names) == 0 {
		return good("containers", "", "none")
	}
	return good("containers", "", "%s in %s: %s", terminal.Count(len(all), "container"),
		terminal.Count(len(databases), "database"), some(names))
}

// judgeThroughput says how much throughput the containers have.
func judgeThroughput(all []items.Container) Finding {
	const check = "throughput"
	var known, not []string
	for _, c := range all {
		if c.Throughput == nil {
			not = append(not, c.Name)
			continue
		}
		known = append(known, fmt.Sprintf("%s %d RU/s", c.Name, *c.Throughput))
	}
	const next = "see the account itself: the key may not read offers, or the containers share the throughput of a " +
		"database or have none"
	switch {
	case len(known) == 0:
		return unknown(check, "", "no container tells", next)
	case len(not) > 0:
		f := unknown(check, "", some(not), next)
		f.Found = some(known) + "; " + f.Found
		return f
	}
	return good(check, "", "%s", some(known))
}
