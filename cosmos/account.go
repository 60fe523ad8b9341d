package cosmos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	accountAge    = 5 * time.Minute  // after so long the account is read anew
	accountRetry  = 30 * time.Second // after a read that failed, while an older one is known
	regionPenalty = time.Minute      // a region that failed comes last for so long

	// accountPatience is how long the answer may take, which is small, and on the way to
	// something else.
	accountPatience = 5 * time.Second
)

// account is what the service says of itself.
type account struct {
	read, write []*url.URL // the addresses of regions, best first
	home        []*url.URL // the one write region that is the same for all clients
	multiWrite  bool
	counts      bool          // the server counts what is pending
	versions    bool          // containers without a policy keep all versions, too
	hold        time.Duration // how long the server holds a read of a feed until there is something; 0 is not at all
}

// atlas is what a client knows of its account. It is read by whoever needs it and finds
// it too old: there is no goroutine for it.
type atlas struct {
	preferred []string
	gate      chan struct{} // held by whoever reads the account
	mu        sync.Mutex
	known     *account
	tried     time.Time            // when it was last read, or not
	due       time.Time            // when it is to be read anew
	down      map[string]time.Time // until when a host comes last
}

func newAtlas(preferred []string) *atlas {
	a := &atlas{gate: make(chan struct{}, 1), down: map[string]time.Time{}}
	for _, name := range preferred {
		a.preferred = append(a.preferred, regionKey(name))
	}
	return a
}

// regionKey makes "West US 2" and "westus2" one.
func regionKey(name string) string { return strings.ToLower(strings.ReplaceAll(name, " ", "")) }

// current is the account, if it is not too old.
func (a *atlas) current() (known *account, fresh bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known, a.known != nil && time.Now().Before(a.due)
}

func (a *atlas) isMultiWrite() bool {
	known, _ := a.current()
	return known != nil && known.multiWrite
}

// learn keeps an account; a nil one means that it could not be read.
func (a *atlas) learn(read *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried = time.Now()
	a.due = a.tried.Add(accountRetry)
	if read != nil {
		a.known, a.due = read, a.tried.Add(accountAge)
	}
}

// doubt makes the next request read the account.
func (a *atlas) doubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due = time.Time{}
}

// blame puts a region last for a while, and has the account read soon: perhaps it has
// failed over.
func (a *atlas) blame(region *url.URL) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down[region.Host] = time.Now().Add(regionPenalty)
	if soon := a.tried.Add(accountRetry); soon.Before(a.due) {
		a.due = soon
	}
}

// praise tells that a region has answered.
func (a *atlas) praise(region *url.URL) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.down, region.Host)
}

// best is the first of some regions that has not failed lately, or just the one that
// failed first. Whether a failed one serves again is for one request to find out, while
// the others go on without it.
func (a *atlas) best(regions []*url.URL) *url.URL {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, u := range regions {
		until, failed := a.down[u.Host]
		if !failed {
			return u
		}
		if now.After(until) {
			a.down[u.Host] = now.Add(regionPenalty)
			return u
		}
	}
	return slices.MinFunc(regions, func(x, y *url.URL) int { return a.down[x.Host].Compare(a.down[y.Host]) })
}

// target is where a request goes.
func (c *Client) target(ctx context.Context, r request) *url.URL {
	acc := c.account(ctx)
	switch {
	case r.home:
		return acc.home[0]
	case r.writes:
		return c.regions.best(acc.write)
	}
	return c.regions.best(acc.read)
}

// account is the account as it is known, read anew when that is too old. Who finds that
// reads it; everybody else goes on with what was known.
func (c *Client) account(ctx context.Context) *account {
	known, fresh := c.regions.current()
	if fresh {
		return known
	}
	select {
	case c.regions.gate <- struct{}{}:
		defer func() { <-c.regions.gate }()
	default:
		return known
	}
	if known, fresh = c.regions.current(); fresh {
		return known // somebody else has read it
	}
	read, err := c.readAccount(ctx, known)
	c.regions.learn(read)
	if err == nil {
		return read
	}
	if ctx.Err() == nil {
		c.log.WarnContext(ctx, "account could not be read: going on with what was known of it", "error", err)
	}
	return known
}

// readAccount asks the endpoint, and the regions that are known if it does not answer.
func (c *Client) readAccount(ctx context.Context, known *account) (*account, error) {
	hosts := []*url.URL{c.endpoint}
	if known != nil {
		hosts = append(hosts, slices.DeleteFunc(slices.Clone(known.read), func(u *url.URL) bool { return u.Host == c.endpoint.Host })...)
	}
	r := request{method: http.MethodGet, at: at(), action: actionMetadata, within: accountPatience}
	a, err := c.send(ctx, r, func() *url.URL { return c.regions.best(hosts) })
	if err != nil {
		return nil, err
	}
	return c.parseAccount(a.body)
}

// location is a region in the account's answer.
type location struct {
	Name     string
	Endpoint string `json:"databaseAccountEndpoint"`
}

// parseAccount reads the account's answer. An account that names no region, or only one,
// stays at the address that the caller gave, which may be the only one that leads there
// from here.
func (c *Client) parseAccount(body []byte) (*account, error) {
	var said struct {
		WritableLocations, ReadableLocations []location
		EnableMultipleWriteLocations         bool
		Changefeed                           struct {
			MaxPollingIntervalInMs int64
			CountsPending          bool
			KeepsVersions          bool
		}
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return nil, fmt.Errorf("parse account: %w", err)
	}
	here := []*url.URL{c.endpoint}
	acc := &account{home: here, write: here, read: here}
	acc.multiWrite = said.EnableMultipleWriteLocations
	acc.hold = min(time.Duration(said.Changefeed.MaxPollingIntervalInMs)*time.Millisecond, maxTimeout)
	acc.counts, acc.versions = said.Changefeed.CountsPending, said.Changefeed.KeepsVersions
	all := slices.Concat(said.WritableLocations, said.ReadableLocations)
	if !slices.ContainsFunc(all, func(l location) bool { return l.Endpoint != all[0].Endpoint }) {
		return acc, nil
	}
	var err error
	if acc.read, err = c.order(all); err != nil || len(said.WritableLocations) == 0 {
		return acc, err
	}
	acc.home, _ = c.order(said.WritableLocations[:1]) // parsed above
	acc.write = acc.home
	if acc.multiWrite {
		acc.write, _ = c.order(said.WritableLocations) // likewise
	}
	return acc, nil
}

// order gives the addresses of regions: the preferred ones, then the others as named.
func (c *Client) order(locations []location) (list []*url.URL, err error) {
	rank := func(l location) int {
		if i := slices.Index(c.regions.preferred, regionKey(l.Name)); i >= 0 {
			return i
		}
		return len(c.regions.preferred)
	}
	locations = slices.Clone(locations)
	slices.SortStableFunc(locations, func(a, b location) int { return rank(a) - rank(b) })
	for _, l := range locations {
		u, err := parseEndpoint(l.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("parse account: region %q: %w", l.Name, err)
		}
		u.Scheme = c.endpoint.Scheme
		if !slices.ContainsFunc(list, func(o *url.URL) bool { return o.Host == u.Host }) {
			list = append(list, u)
		}
	}
	return list, nil
}
