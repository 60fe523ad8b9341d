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

	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// Regions: the address to which a request goes. A client learns about the regions only from requests: from the account,
// which the client reads if the last read is older than five minutes, and from regions that do not answer. There are no
// probes and no goroutines, so the first request after a region's penalty notices the return of the region.
const (
	// The service's SDKs read the account as often.
	accountAge    = 5 * time.Minute  // the account is read anew after this time
	accountRetry  = 30 * time.Second // after a failed read, if an older account is known
	regionPenalty = time.Minute      // a failed region comes last for this time

	// accountPatience bounds the read of the account: the answer is small, and another
	// request waits for it.
	accountPatience = 5 * time.Second
)

// account is the service's description of itself.
type account struct {
	read, write []*url.URL // the addresses of regions, best first
	hub         []*url.URL // the first write region, the same for all clients
	multiWrite  bool
	counts      bool          // the server counts pending changes
	versions    bool          // containers without a policy keep all versions, too
	hold        time.Duration // how long the server holds a read of a feed without changes; 0 is not at all
}

// regions is a client's knowledge of its account. If the account is too old, the next request reads it, on its own
// goroutine: an idle client costs nothing and needs no shutdown.
type regions struct {
	preferred []string
	gate      chan struct{} // protects the read of the account
	mu        sync.Mutex
	known     *account
	tried     time.Time            // time of the last read, successful or not
	due       time.Time            // time of the next read
	down      map[string]time.Time // failed hosts, and until when they come last
}

// newRegions makes regions without an account.
func newRegions(preferred []string) *regions {
	a := &regions{gate: make(chan struct{}, 1), down: map[string]time.Time{}}
	for _, name := range preferred {
		a.preferred = append(a.preferred, regionKey(name))
	}
	return a
}

// regionKey makes "West US 2" and "westus2" equal: Azure uses both.
func regionKey(name string) string { return strings.ToLower(strings.ReplaceAll(name, " ", "")) }

// currentAccount returns the account, and whether it is recent enough to use without a read.
func (a *regions) currentAccount() (known *account, fresh bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known, a.known != nil && time.Now().Before(a.due)
}

// isMultiWrite reports whether every region accepts writes. Before the first read of the account the result is false,
// because a single write region would make the others refuse.
func (a *regions) isMultiWrite() bool {
	known, _ := a.currentAccount()
	return known != nil && known.multiWrite
}

// keepAccount stores an account; nil records a failed read.
func (a *regions) keepAccount(read *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried = time.Now()
	a.due = a.tried.Add(accountRetry)
	if read != nil {
		a.known, a.due = read, a.tried.Add(accountAge)
	}
}

// expireAccount makes the next request read the account.
func (a *regions) expireAccount() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due = time.Time{}
}

// markFailed puts a region last for a while and advances the next read of the account, because the account may have
// failed over. The read is not due at once: otherwise every request would read the account while a region is down.
func (a *regions) markFailed(region *url.URL) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down[region.Host] = time.Now().Add(regionPenalty)
	if soon := a.tried.Add(accountRetry); soon.Before(a.due) {
		a.due = soon
	}
}

// markAnswered records that a region has answered.
func (a *regions) markAnswered(region *url.URL) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.down, region.Host)
}

// bestOf returns the first region without a recent failure or, if all have failed, the region that failed first. When a
// failed region's penalty is over, a single request goes there to find out whether the region serves again; the others
// avoid it for another penalty.
func (a *regions) bestOf(regions []*url.URL) *url.URL {
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

// targetOf returns the region to which a request goes.
func (c *Client) targetOf(ctx context.Context, r request) *url.URL {
	acc := c.freshAccount(ctx)
	switch {
	// The hub has no substitute: a lease that two instances write in two regions would
	// have two owners. While it is down, lease writes fail and leases run out.
	case r.hub:
		return acc.hub[0]
	case r.writes:
		return c.regions.bestOf(acc.write)
	}
	return c.regions.bestOf(acc.read)
}

// freshAccount returns the account, and reads it anew if it is too old. The first request that notices reads the
// account; the others go on with the old knowledge, because a hanging region must not delay requests to regions that
// answer.
func (c *Client) freshAccount(ctx context.Context) *account {
	known, fresh := c.regions.currentAccount()
	if fresh {
		return known
	}
	select {
	case c.regions.gate <- struct{}{}:
		defer func() { <-c.regions.gate }()
	default:
		return known
	}
	if known, fresh = c.regions.currentAccount(); fresh {
		return known // another request has read the account
	}
	read, err := c.readAccount(ctx, known)
	c.regions.keepAccount(read)
	if err == nil {
		return read
	}
	if ctx.Err() == nil {
		c.log.WarnContext(ctx, "account could not be read: going on with what was known of it", "error", err)
	}
	return known
}

// readAccount asks the endpoint or, if the endpoint does not answer, the known regions.
func (c *Client) readAccount(ctx context.Context, known *account) (*account, error) {
	hosts := []*url.URL{c.endpoint}
	if known != nil {
		hosts = append(hosts, slices.DeleteFunc(slices.Clone(known.read), func(u *url.URL) bool {
			return u.Host == c.endpoint.Host
		})...)
	}
	r := request{method: http.MethodGet, at: rest.At(), action: actionMetadata, within: accountPatience}
	a, err := c.sendTo(ctx, r, func() *url.URL { return c.regions.bestOf(hosts) })
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

// parseAccount reads the account's answer. If the account has a single address, the client stays at the caller's
// endpoint, which may be the only way to the account, through a tunnel or a proxy. For example, the emulator names an
// address that only the emulator's host can reach.
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
	acc := &account{hub: here, write: here, read: here}
	acc.multiWrite = said.EnableMultipleWriteLocations
	acc.hold = min(time.Duration(said.Changefeed.MaxPollingIntervalInMs)*time.Millisecond, maxTimeout)
	acc.counts, acc.versions = said.Changefeed.CountsPending, said.Changefeed.KeepsVersions
	all := slices.Concat(said.WritableLocations, said.ReadableLocations)
	if !slices.ContainsFunc(all, func(l location) bool { return l.Endpoint != all[0].Endpoint }) {
		return acc, nil
	}
	var err error
	if acc.read, err = c.orderRegions(all); err != nil || len(said.WritableLocations) == 0 {
		return acc, err
	}
	acc.hub, _ = c.orderRegions(said.WritableLocations[:1]) // parsed above, so there is no error
	acc.write = acc.hub
	if acc.multiWrite {
		acc.write, _ = c.orderRegions(said.WritableLocations) // likewise
	}
	return acc, nil
}

// orderRegions returns the addresses of regions: the preferred ones, then the others as
// listed.
func (c *Client) orderRegions(locations []location) (list []*url.URL, err error) {
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
