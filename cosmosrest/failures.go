package cosmosrest

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/fold"
)

// failures keeps the log of failed requests readable: clients repeat a failed request for ever, and an operator needs
// one line for each cause.
type failures struct {
	refused fold.Fold // requests of unknown senders, by address

	fullSince atomic.Int64 // since when the disk has been full, in nanoseconds since 1970; 0 if it is not
	checkRoom func() error // of the store
}

// logFailure writes a failed request to the log, if the server or the operator has to do with the cause. A full disk is
// one line when it begins, and a refused sender at most one line a minute.
func (c *call) logFailure(e *wire.Error, err error) {
	log, now := c.s.log, time.Now()
	switch {
	case errors.Is(err, docstore.ErrDiskFull):
		if c.s.failures.fullSince.CompareAndSwap(0, now.UnixNano()) {
			log.Error("the disk is full: the store refuses writes until there is room; free some space", "err", err)
		}
	case e.Status >= http.StatusInternalServerError:
		log.Error("request failed", "method", c.in.Method, "path", c.in.Path(), "status", e.Status, "err", err,
			"activity", c.out.Activity)
	case !c.known && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden):
		client := c.in.Client()
		if left, ok := c.s.failures.refused.Admit(client, c.in.Path(), now); ok {
			why, _, _ := strings.Cut(e.Message, "\n")
			log.Warn("request refused", append([]any{
				"client", client, "status", e.Status, "path", c.in.Path(), "err", why, "activity", c.out.Activity,
			}, left.Attrs("paths")...)...)
		}
	}
}

// logRecovery says after a write that the disk has room again. Queries are no writes, and a write that frees space
// succeeds on a full disk too.
func (c *call) logRecovery() {
	since := c.s.failures.fullSince.Load()
	isWrite := c.in.Method != http.MethodGet && c.in.Method != http.MethodHead && !c.in.IsQuery()
	if since == 0 || !isWrite || c.out.Status >= http.StatusBadRequest || c.s.failures.checkRoom() != nil ||
		!c.s.failures.fullSince.CompareAndSwap(since, 0) {
		return
	}
	c.s.log.Warn("the disk has room again, and the store takes writes", "after",
		time.Since(time.Unix(0, since)).Round(time.Second).String())
}
