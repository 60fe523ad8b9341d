package doctor

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// The checks of an account or a server.

// container is a container, as it is listed.
type container = items.Container

// glances is how many requests are sent for the clock and the latency.
const glances = 6

// examineAccount checks an account from the outside to the inside.
func (p *patient) examineAccount(ctx context.Context) {
	p.check(ctx, "account", p.checkOrigin)
	if p.origin.Endpoint != "" {
		p.check(ctx, "encryption", func(context.Context) []Finding { return []Finding{judgeEncryption(p.origin)} })
		p.check(ctx, "name", p.checkName)
		p.check(ctx, "connection", p.checkConnection)
		if u, err := url.Parse(p.origin.Endpoint); err == nil && u.Scheme == "https" {
			p.check(ctx, "certificate", p.checkCertificate)
		}
	}
	p.check(ctx, "read", p.checkRead)
	p.check(ctx, "clock", p.checkClock)
	p.check(ctx, "latency", p.checkLatency)
	p.check(ctx, "containers", p.checkContainers)
	p.check(ctx, "write", p.checkWrite)
	p.check(ctx, "throughput", p.checkThroughput)
	p.examineIntegrity(ctx)
	p.examineUnits(ctx)
}

// checkOrigin says which account and which key are meant.
func (p *patient) checkOrigin(ctx context.Context) []Finding {
	origin, err := p.Opener.Origin(ctx, p.At)
	p.origin = origin
	if err != nil {
		p.blocked = noKey
	}
	if origin.Endpoint == "" {
		p.blocked = noAccount
		return []Finding{failed("account", "", Fail, err)}
	}
	from := ""
	switch {
	case origin.From != "":
		from = ", from " + origin.From
	case !strings.HasPrefix(p.At.Given, origin.Endpoint): // a name in a context
		from = ", by ADDRESS " + p.At.Given
	}
	return []Finding{good("account", "", "%s%s", origin.Endpoint, from), judgeKey(origin, err)}
}

// peer returns the host and port that this machine connects to: those of the endpoint, or of a proxy.
func (p *patient) peer() (host, port, about string) {
	hostPort := place.HostPort(p.origin.Endpoint)
	if proxy := place.Proxy(p.origin.Endpoint); proxy != "" {
		hostPort, about = proxy, "proxy "+proxy
	}
	host, port, _ = net.SplitHostPort(hostPort) // of a URL, so it has both
	return host, port, about
}

// checkName resolves the name of the host.
func (p *patient) checkName(ctx context.Context) []Finding {
	host, _, about := p.peer()
	if net.ParseIP(host) != nil {
		return []Finding{good("name", about, "%s is an address", host)}
	}
	all, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		p.blocked = noName
		return []Finding{failed("name", about, Fail, err)}
	}
	return []Finding{good("name", about, "%s is %s", host, some(all))}
}

// checkConnection connects to the host.
func (p *patient) checkConnection(ctx context.Context) []Finding {
	const check = "connection"
	host, port, about := p.peer()
	if p.blocked == noName {
		return []Finding{p.mute(check)}
	}
	begun := time.Now()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		p.blocked = noConnection
		return []Finding{failed(check, about, Fail, err)}
	}
	_ = c.Close() // nothing was sent
	return []Finding{good(check, about, "to %s in %v", net.JoinHostPort(host, port),
		time.Since(begun).Round(time.Millisecond/10))}
}

// checkCertificate reads and judges the certificate.
func (p *patient) checkCertificate(ctx context.Context) []Finding {
	const check = "certificate"
	if p.blocked == noName || p.blocked == noConnection {
		return []Finding{p.mute(check)}
	}
	seal, err := p.Opener.Seal(ctx, p.origin.Endpoint)
	if err != nil {
		return []Finding{failed(check, "", Fail, err)}
	}
	p.sealed = seal.Answers
	return []Finding{judgeCertificate(seal, time.Now())}
}

// checkRead asks the account, and judges the answers.
func (p *patient) checkRead(ctx context.Context) []Finding {
	const check = "read"
	if found, ok := p.muted(check); ok {
		return found
	}
	var err error
	p.glances, err = p.Opener.Glance(ctx, p.At, glances)
	if len(p.glances) == 0 {
		p.blocked = noReading
		return []Finding{failed(check, "", Fail, err)}
	}
	f := judgeRead(p.glances, p.origin)
	if f.Verdict == Fail {
		p.blocked = noReading
	}
	return []Finding{f}
}

// checkClock judges the clock of this machine. A server that is not trusted says the time, too, and a wrong clock can
// be why it is not trusted.
func (p *patient) checkClock(context.Context) []Finding {
	all := p.glances
	if len(all) == 0 {
		all = p.sealed
	}
	if len(all) == 0 {
		return []Finding{p.mute("clock")}
	}
	return []Finding{judgeClock(all)}
}

// checkLatency judges how long the answers took.
func (p *patient) checkLatency(context.Context) []Finding {
	if len(p.glances) == 0 {
		return []Finding{p.mute("latency")}
	}
	return []Finding{judgeLatency(p.glances)}
}

// checkContainers lists the containers.
func (p *patient) checkContainers(ctx context.Context) []Finding {
	const check = "containers"
	if found, ok := p.muted(check); ok {
		return found
	}
	all, err := items.List(ctx, p.Opener, p.At)
	if err != nil {
		p.blocked = noList
		return []Finding{judgeMissing(p.At, err)}
	}
	p.containers = all
	return []Finding{judgeContainers(all)}
}

// checkWrite asks whether the key may write.
func (p *patient) checkWrite(ctx context.Context) []Finding {
	const check = "write"
	if found, ok := p.muted(check); ok {
		return found
	}
	if len(p.containers) == 0 {
		return []Finding{unknown(check, "", "there is no container to ask about", "create one: changefeed create")}
	}
	asked := p.containers[0]
	if i := slices.IndexFunc(p.containers, isLeaseKey); i >= 0 {
		asked = p.containers[i] // instances write there
	}
	right, err := p.Opener.MayWrite(ctx, p.addressOf(asked))
	return []Finding{judgeWrite(right, asked.Name, err)}
}

// checkThroughput judges the throughput of the containers.
func (p *patient) checkThroughput(context.Context) []Finding {
	if found, ok := p.muted("throughput"); ok {
		return found
	}
	if len(p.containers) == 0 {
		return nil
	}
	return []Finding{judgeThroughput(p.containers)}
}

// mostChecked is how many documents are read to check a store; the command check reads more.
const mostChecked = 20_000

// examineIntegrity checks every invariant of a small store, if the address is that of a whole store. An account has no
// such check.
func (p *patient) examineIntegrity(ctx context.Context) {
	if p.blocked == nil && p.At.Database == "" {
		p.check(ctx, "integrity", p.checkIntegrity)
	}
}

// checkIntegrity checks every invariant of a small store.
func (p *patient) checkIntegrity(ctx context.Context) []Finding {
	const check = "integrity"
	documents := int64(0)
	for _, c := range p.containers {
		if c.Documents != nil {
			documents += *c.Documents
		}
	}
	if documents > mostChecked {
		return []Finding{unknown(check, "", terminal.Count(documents, "document")+" take long to read",
			"changefeed check reads them all, if it is no account of Azure")}
	}
	violations, err := p.Opener.Check(ctx, p.At, func(place.Checked) {})
	return judgeIntegrity(violations, err, documents)
}
